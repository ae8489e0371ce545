

PORT_TAKEN = (
    "port %d was in use on this machine when the server started, by another replica or version of it or by another program. A server that listens at"
    " this port only can run once on a machine: set instance_count to 0 before the change, have berth.command pass $PORT to the server, or use another machine"
)


def taken(port):
    """Whether somebody listens on a port."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended do not count
        try:
            s.bind(("", port))
        except OSError as e:
            return e.errno == errno.EADDRINUSE
    return False


class Front:
    """Stands before a server of the user's own: proves to the gateway that it is the one of the replica,
    lets nobody else in, and passes bytes on, whatever the protocol."""

    def __init__(self, command):
        self.secret = os.environ.pop("BERTH_REPLICA_SECRET", "")
        self.route = os.environ.get("BERTH_READY") or "/"
        self.listener = socket.socket()
        self.listener.bind((os.environ.get("BERTH_BIND", "127.0.0.1"), 0))
        self.listener.listen(1024)
        with socket.socket() as s:
            s.bind(("127.0.0.1", int(os.environ.get("BERTH_COMMAND_PORT") or 0)))
            self.port = s.getsockname()[1]
        self.fixed = int(os.environ.get("BERTH_IMAGE_PORT") or 0)  # where it may listen instead
        at = os.environ.get("BERTH_TASK_DIR")
        folder = tempfile.mkdtemp(prefix="s-", dir=at if at and len(at) < 80 and os.access(at, os.W_OK) else None)  # only we can open it
        self.socket = os.path.join(folder, "s")
        self.command, self.ready = command, False

    def run(self):
        count = max(1, int(os.environ.get("WORKER_COUNT") or 1))
        print("berth-worker: ports", *[self.listener.getsockname()[1]] * count, flush=True)
        begun = time.perf_counter()
        env = {k: v for k, v in os.environ.items() if not k.startswith("BERTH_")}
        held = self.fixed and taken(self.fixed)
        adopt_orphans()
        self.process = subprocess.Popen(["sh", "-c", self.command], env=dict(env, PORT=str(self.port), SOCKET=self.socket), preexec_fn=lambda: die_with_parent(signal.SIGTERM))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.process.terminate())
        threading.Thread(target=self.accept, daemon=True).start()
        threading.Thread(target=self.watch, args=(begun,), daemon=True).start()
        code = self.process.wait()
        log.error("the command ended with %d", code)
        if held and not self.ready:
            log.error(PORT_TAKEN, self.fixed)
        return code if code > 0 else 1

    def watch(self, begun):
        while not self.ready:
            if self.fixed and self.fixed != self.port and listens(self.fixed, False):
                self.port = self.fixed
            if self.answers(self.route, 2):
                if not os.path.exists(self.socket) and not listens(self.port):
                    log.error("port %d is another program's, not the command's: have the command listen on $PORT or $SOCKET", self.port)
                    self.process.terminate()
                    return
                self.ready = True
            time.sleep(0.05)
        start = {"how": "cold", "import": 0, "init": round((time.perf_counter() - begun) * 1000, 3)}
        print("berth-worker: start", json.dumps(start), flush=True)
        self.look_after()

    def look_after(self):
        """Ends the command where its liveness route is not answered for so many times in a row."""
        route, most, missed = os.environ.get("BERTH_LIVE"), int(os.environ.get("BERTH_LIVE_FAILURES") or 30), 0
        period, timeout = seconds("BERTH_LIVE_PERIOD") or 10, seconds("BERTH_LIVE_TIMEOUT") or 2
        while route:
            time.sleep(period)
            missed = 0 if self.answers(route, timeout) else missed + 1
            if missed >= most:
                log.error("the liveness route %s was not answered %d times in a row; ending the command", route, missed)
                self.process.terminate()
                try:
                    self.process.wait(10)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                return

    def dial(self, timeout):
        """A connection to the command: to its socket where it has made one, which nobody else can open, or
        to its port."""
        if os.path.exists(self.socket):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(timeout)
            try:
                s.connect(self.socket)
            except OSError:
                s.close()
                raise
            return s
        s = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def answers(self, route, timeout):
        c = http.client.HTTPConnection("localhost")
        try:
            c.sock = self.dial(timeout)
            c.request("GET", route)
            status = c.getresponse().status
            return status < 400 or status < 500 and route == "/"  # a server need not have a page there
        except (http.client.BadStatusLine, ConnectionResetError):
            return self.answers_http2(timeout)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            c.close()

    def answers_http2(self, timeout):
        """Whether the command speaks HTTP/2: servers of gRPC speak nothing else, and have no pages. They
        are ready when they answer with their settings."""
        try:
            with self.dial(timeout) as s:
                s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
                frame = b""
                while len(frame) < 9:
                    part = s.recv(9 - len(frame))
                    if not part:
                        return False
                    frame += part
                return frame[3] == 4 and frame[5:] == b"\0\0\0\0"
        except OSError:
            return False

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
                    if headers.get("x-berth-tunnel") and not server:
                        self.tunnel(sock, buffer)
                        return
                    kept = [line for line in lines if not line.lower().startswith("x-berth-")]
                    if not server:
                        server = stack.enter_context(Relay(sock, buffer, self.dial(10)))
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

    def tunnel(self, sock, buffer):
        """Passes bytes on in both directions: HTTP/2, of which each connection has many requests."""
        with self.dial(10) as up:
            for s in (sock, up):
                s.settimeout(None)
            sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
            up.sendall(buffer)
            back = threading.Thread(target=pass_on, args=(up, sock), daemon=True)
            back.start()
            pass_on(sock, up)
            back.join()

    def prove(self, sock, nonce):
        proof = hmac.new(self.secret.encode(), nonce.encode("latin-1"), "sha256").hexdigest()
        status = "200 OK" if self.ready else "503 Service Unavailable"
        sock.sendall(f"HTTP/1.1 {status}\r\nX-Berth-Proof: {proof}\r\nContent-Length: 0\r\n\r\n".encode())


class Relay:
    """A connection of the gateway, and the one to the user's server that goes with it. Requests are told
    apart, so that none shows the replica's secret; answers pass as they are."""

    def __init__(self, sock, buffer, up):
        self.sock, self.buffer, self.up = sock, buffer, up
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


def adopt_orphans():
    """Has processes whose parents ended become children of this one, so that they are known."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1)
    except (ImportError, OSError, AttributeError):
        pass


def children(pid):
    """All processes below one."""
    out = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as f:
                for child in f.read().split():
                    out += [child] + children(child)
    except OSError:
        pass
    return out


def listens(port, unknown=True):
    """Whether it is a child of this process that listens on a port; unknown where that cannot be known."""
    sockets = set()
    try:
        for name in ("tcp", "tcp6"):
            with open("/proc/net/" + name) as f:
                rows = [line.split() for line in f.readlines()[1:]]
            sockets |= {f"socket:[{r[9]}]" for r in rows if r[3] == "0A" and int(r[1].rpartition(":")[2], 16) == port}
        found = bool(sockets)
        for pid in children(os.getpid()):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                try:
                    sockets.discard(os.readlink(f"/proc/{pid}/fd/{fd}"))
                except FileNotFoundError:
                    pass
    except (OSError, ValueError, IndexError):
        return unknown
    return not sockets and (found or unknown)


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
