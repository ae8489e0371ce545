import http.server
import os


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101)
            self.end_headers()
            while data := self.connection.recv(1024):
                self.connection.sendall(data)
            self.close_connection = True
            return
        self.answer()

    def answer(self):
        body = b""
        if self.headers.get("Transfer-Encoding"):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline() != b"\r\n":
                pass
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        text = (self.requestline + "\n" + str(self.headers)).encode() + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = answer


http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
