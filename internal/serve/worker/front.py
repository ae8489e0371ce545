

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
            with sock:
                sock.settimeout(IDLE)
                buffer = bytearray()
                while True:
                    head = self.head(sock, buffer)
                    if head is None:
                        return
                    lines = head.decode("latin-1").split("\r\n")
                    headers = Headers([(n, v.strip()) for n, _, v in (line.partition(":") for line in lines[1:])])
                    nonce = headers.get("x-berth-nonce")
                    if nonce:
                        self.prove(sock, nonce)
                        continue
                    given = (headers.get("x-berth-replica") or "").encode("latin-1")
                    if not hmac.compare_digest(given, self.secret.encode()):
                        sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        return
                    kept = [line for line in lines if not line.lower().startswith("x-berth-replica:")]
                    self.relay(sock, "\r\n".join(kept).encode("latin-1") + b"\r\n\r\n" + bytes(buffer))
                    return
        except OSError:
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

    def relay(self, sock, first):
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as up:
            up.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for s in (sock, up):
                s.settimeout(None)
            up.sendall(first)
            back = threading.Thread(target=self.pass_on, args=(up, sock), daemon=True)
            back.start()
            self.pass_on(sock, up)
            back.join()

    @staticmethod
    def pass_on(source, to):
        try:
            while True:
                data = source.recv(64 << 10)
                if not data:
                    break
                to.sendall(data)
        except OSError:
            pass
        for s, how in ((to, socket.SHUT_WR), (source, socket.SHUT_RD)):
            try:
                s.shutdown(how)
            except OSError:
                pass
