package app_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// custom is a server of the user's own: it echoes, streams events one by one, and speaks another
// protocol after an upgrade.
const custom = `
import http.server, os, socketserver

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101)
            self.send_header("Upgrade", "echo")
            self.send_header("Connection", "Upgrade")
            self.end_headers()
            while True:
                line = self.rfile.readline()
                if not line:
                    break
                self.wfile.write(b"echo " + line)
            self.close_connection = True
            return
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(2):
                part = b"data: %d\n\n" % i
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                self.wfile.flush()
                if i == 0:
                    go.recv(1)
            self.wfile.write(b"0\r\n\r\n")
            return
        body = (self.path + " " + os.path.basename(os.environ["AZUREML_MODEL_DIR"])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        n, size = int(self.headers["Content-Length"]), 0
        while size < n:
            size += len(self.rfile.read(min(n - size, 1 << 20)))
        if self.path == "/go":
            tell.send(b"x")
        body = str(size).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

import socket
go, tell = socket.socketpair()
Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
`

// request sends a request to a path below the endpoint.
func (e *endpointServer) request(method, path string, body io.Reader) *http.Response {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), method, strings.TrimSuffix(e.uri, "score")+path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+e.key)
	resp, err := e.remote.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp
}

// TestEndpointPassesOn: below an endpoint every path passes to a server of the user's own, events
// as they come, large bodies, and other protocols.
func TestEndpointPassesOn(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	e.passesOn()
	e.end()
}

// passesOn deploys such a server, and calls it.
func (e *endpointServer) passesOn() {
	t := e.t
	t.Helper()
	code, m := e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/blue", map[string]any{"location": "local", "properties": map[string]any{
		"model": e.model("weights", custom), "properties": map[string]any{"berth.command": `exec "$(command -v python || command -v python3)" "$AZUREML_MODEL_DIR"/files/server.py`},
		"requestSettings": map[string]any{"requestTimeout": "PT60S", "maxConcurrentRequestsPerInstance": 4},
	}})
	if code != http.StatusCreated {
		t.Fatal(code, m)
	}
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	e.traffic(map[string]any{"blue": 100})
	resp := e.request("GET", "v2/models/m?x=1", nil)
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(b) != "/v2/models/m?x=1 1" {
		t.Errorf("%q %v", b, err)
	}
	resp = e.request("POST", "large", strings.NewReader(strings.Repeat("x", 20<<20)))
	b, err = io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(b) != "20971520" {
		t.Errorf("a large body: %q %v", b, err)
	}
	events := e.request("GET", "events", nil)
	defer events.Body.Close()
	lines := bufio.NewReader(events.Body)
	if line, err := lines.ReadString('\n'); line != "data: 0\n" {
		t.Fatalf("the first event is %q %v", line, err)
	}
	e.request("POST", "go", strings.NewReader("x")).Body.Close() // which the second one waits for
	if rest, err := io.ReadAll(lines); string(rest) != "\ndata: 1\n\n" {
		t.Errorf("the rest is %q %v", rest, err)
	}
	e.upgrade()
}

// upgrade changes to the protocol echo, as WebSocket does.
func (e *endpointServer) upgrade() {
	t := e.t
	u, err := url.Parse(strings.TrimSuffix(e.uri, "score"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(e.app.URL, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %sws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAuthorization: Bearer %s\r\n\r\n", u.Path, u.Host, e.key)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	fmt.Fprintf(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("%q %v", line, err)
	}
}
