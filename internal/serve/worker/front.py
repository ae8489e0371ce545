

class Front:
    """Stands before a server of the user's own: proves to the gateway that it is the one of the replica,
    lets nobody else in, and passes bytes on, whatever the protocol."""

    def __init__(self, command):
        self.secret = os.environ.pop("BERTH_REPLICA_SECRET", "")
        self.route = os.environ.get("BERTH_READY") or "/"
        self.listener = socket.socket()
        self.listener.bind((os.environ.get("BERTH_BIND", "127.0.0.1"), 0))
        self.listener.listen(128)
        with socket.socket() as s:
            s.bind(("127.0.0.1", int(os.environ.get("BERTH_COMMAND_PORT") or 0)))
            self.port = s.getsockname()[1]
        self.command, self.ready = command, False

    def run(self):
        count = max(1, int(os.environ.get("WORKER_COUNT") or 1))
        print("berth-worker: ports", *[self.listener.getsockname()[1]] * count, flush=True)
        begun = time.perf_counter()
        env = {k: v for k, v in os.environ.items() if not k.startswith("BERTH_")}
        self.process = subprocess.Popen(["sh", "-c", self.command], env=dict(env, PORT=str(self.port)), preexec_fn=lambda: die_with_parent(signal.SIGTERM))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.process.terminate())
        threading.Thread(target=self.accept, daemon=True).start()
        threading.Thread(target=self.watch, args=(begun,), daemon=True).start()
        code = self.process.wait()
        log.error("the command ended with %d", code)
        return code if code > 0 else 1

    def watch(self, begun):
        while not self.ready:
            self.ready = self.answers()
            time.sleep(0.05)
        start = {"how": "cold", "import": 0, "init": round((time.perf_counter() - begun) * 1000, 3)}
        print("berth-worker: start", json.dumps(start), flush=True)

    def answers(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            c.request("GET", self.route)
            status = c.getresponse().status
            return status < 400 or status < 500 and self.route == "/"  # a server need not have a page there
        except (OSError, http.client.HTTPException):
            return False
        finally:
            c.close()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            with sock, contextlib.ExitStack() as stack:
                sock.settimeout(IDLE)
                buffer, server = bytearray(), None
                while True:
                    head = self.head(sock, buffer)
                    if head is None:
                        return
                    lines = head.decode("latin-1").split("\r\n")
                    headers = Headers([(n, v.strip()) for n, _, v in (line.partition(":") for line in lines[1:])])
                    nonce = headers.get("x-berth-nonce")
                    if nonce and not server:
                        self.prove(sock, nonce)
                        continue
                    given = (headers.get("x-berth-replica") or "").encode("latin-1")
                    if not hmac.compare_digest(given, self.secret.encode()):
                        sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        return
                    kept = [line for line in lines if not line.lower().startswith("x-berth-replica:")]
                    if not server:
                        server = stack.enter_context(Relay(sock, buffer, self.port))
                    if not server.request("\r\n".join(kept).encode("latin-1") + b"\r\n\r\n", headers):
                        return
        except (OSError, ValueError):  # the connection is gone, or what came is not HTTP
            return

    @staticmethod
    def head(sock, buffer):
        while b"\r\n\r\n" not in buffer:
            data = sock.recv(64 << 10)
            if not data or len(buffer) > MAX_HEADER:
                return None
            buffer += data
        end = buffer.find(b"\r\n\r\n")
        head = bytes(buffer[:end])
        del buffer[: end + 4]
        return head

    def prove(self, sock, nonce):
        proof = hmac.new(self.secret.encode(), nonce.encode("latin-1"), "sha256").hexdigest()
        status = "200 OK" if self.ready else "503 Service Unavailable"
        sock.sendall(f"HTTP/1.1 {status}\r\nX-Berth-Proof: {proof}\r\nContent-Length: 0\r\n\r\n".encode())


class Relay:
    """A connection of the gateway, and the one to the user's server that goes with it. Requests are told
    apart, so that none shows the replica's secret; answers pass as they are."""

    def __init__(self, sock, buffer, port):
        self.sock, self.buffer = sock, buffer
        self.up = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.up.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for s in (self.sock, self.up):
            s.settimeout(None)
        self.upgrade = None  # the beginning of the answer to a request for another protocol
        self.switched, self.answered = False, threading.Event()
        self.back = threading.Thread(target=self.answers, daemon=True)

    def __enter__(self):
        self.back.start()
        return self

    def __exit__(self, kind, *_):
        close(self.up, socket.SHUT_RDWR if kind else socket.SHUT_WR)
        self.back.join()
        self.up.close()

    def request(self, head, headers):
        """Passes on a request. It is false where no other one can follow."""
        upgrade = headers.get("upgrade")
        if upgrade:
            self.switched, self.upgrade = False, b""
            self.answered.clear()
        self.up.sendall(head)
        if "chunked" in (headers.get("transfer-encoding") or "").lower():
            whole = self.chunks()
        else:
            whole = self.body(int(headers.get("content-length") or 0))
        if not whole or not upgrade:
            return whole
        self.answered.wait()
        if self.switched:
            self.up.sendall(self.buffer)
            pass_on(self.sock, self.up)
        return not self.switched

    def body(self, size):
        while size > 0:
            if not self.buffer and not self.more():
                return False
            part = bytes(self.buffer[:size])
            del self.buffer[: len(part)]
            self.up.sendall(part)
            size -= len(part)
        return True

    def chunks(self):
        while True:
            line = self.line()
            if line is None:
                return False
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            if not self.body(size) or self.line() is None:
                return False
        while line != b"\r\n":  # trailers
            line = self.line()
            if line is None:
                return False
        return True

    def line(self):
        """Passes on a line, and returns it."""
        while b"\n" not in self.buffer:
            if len(self.buffer) > MAX_HEADER or not self.more():
                return None
        line = bytes(self.buffer[: self.buffer.find(b"\n") + 1])
        del self.buffer[: len(line)]
        self.up.sendall(line)
        return line

    def more(self):
        data = self.sock.recv(64 << 10)
        self.buffer += data
        return bool(data)

    def answers(self):
        pass_on(self.up, self.sock, self.look)
        self.answered.set()

    def look(self, data):
        if self.upgrade is None:
            return
        self.upgrade += data[:16]
        if len(self.upgrade) >= 12:
            self.switched = self.upgrade[8:12] == b" 101"
            self.upgrade = None
            self.answered.set()


def pass_on(source, to, look=None):
    try:
        while True:
            data = source.recv(64 << 10)
            if not data:
                break
            if look:
                look(data)
            to.sendall(data)
    except OSError:
        pass
    close(to, socket.SHUT_WR)
    close(source, socket.SHUT_RD)


def close(sock, how):
    try:
        sock.shutdown(how)
    except OSError:
        pass
