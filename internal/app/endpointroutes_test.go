package app_test

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// routed is a server of somebody's own at a port of its own, with routes of its own. It is not
// ready at first, and does not work any more once it was told so.
const routed = `
import http.server, os, sys

asked, works = 0, True

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        global asked
        if self.path == "/ready":
            asked += 1
        ok = {"/ready": asked > 2, "/live": works}.get(self.path, False)
        self.answer(200 if ok else 500, "pid %d" % os.getpid())

    def do_POST(self):
        global works
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        works = works and self.path != "/break"
        self.answer(200, "%s got %s" % (self.path, body))

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
`

// freePort is a port of this machine where nobody listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// environment registers an environment with an inferenceConfig.
func (e *endpointServer) environment(name string, live, ready, score int) string {
	e.t.Helper()
	id := e.ws + "/environments/" + name + "/versions/1"
	code, m := e.do("PUT", id, map[string]any{"properties": map[string]any{
		"condaFile": "dependencies:\n- python\n", "osType": "Linux", "inferenceConfig": map[string]any{
			"livenessRoute": map[string]any{"port": live, "path": "/live"}, "readinessRoute": map[string]any{"port": ready, "path": "/ready"},
			"scoringRoute": map[string]any{"port": score, "path": "/v1/models/m:predict"},
		},
	}})
	if code != http.StatusCreated {
		e.t.Fatal(code, m)
	}
	return id
}

// TestEndpointRoutes: a server of somebody's own is asked by the routes and at the port that its
// environment says; one that does not answer at its liveness route is replaced.
func TestEndpointRoutes(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	port := freePort(t)
	deployment := map[string]any{
		"model": e.model("m", routed), "environmentId": e.environment("routes", port, port, port),
		"properties":    map[string]any{"berth.command": `exec python3 "$AZUREML_MODEL_DIR"/files/server.py ` + strconv.Itoa(port)},
		"livenessProbe": map[string]any{"initialDelay": "PT1S", "period": "PT1S", "timeout": "PT2S", "failureThreshold": 2, "successThreshold": 1},
	}
	code, m := e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/blue", map[string]any{"location": "local", "properties": deployment})
	if code != http.StatusCreated {
		t.Fatal(code, m)
	}
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	e.traffic(map[string]any{"blue": 100})
	if code, body, _ := e.call(`one`); code != http.StatusOK || body != "/v1/models/m:predict got one" {
		t.Errorf("%d %s", code, body)
	}
	own := *e
	own.uri = strings.TrimSuffix(e.uri, "score") + "v1/other"
	if code, body, _ := own.call(`two`); code != http.StatusOK || body != "/v1/other got two" {
		t.Errorf("%d %s", code, body)
	}
	own.uri = strings.TrimSuffix(e.uri, "score") + "break"
	if code, body, _ := own.call(`three`); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	e.eventually("the replica is replaced", func() bool {
		_, b := e.state("blue")
		why, _ := b["deathWhy"].(string)
		return strings.Contains(why, "the liveness route /live was not answered 2 times in a row")
	})
	if code, body, _ := e.call(`four`); code != http.StatusOK || body != "/v1/models/m:predict got four" {
		t.Errorf("after the replacement: %d %s", code, body)
	}
	for name, ports := range map[string][3]int{"one port for all three": {port, port, port + 1}, "from 1 to 65535": {0, 0, 0}} {
		wrong := map[string]any{"environmentId": e.environment("wrong"+strconv.Itoa(ports[2]), ports[0], ports[1], ports[2])}
		code, m := e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/wrong", map[string]any{"location": "local", "properties": wrong})
		if code/100 == 2 || !strings.Contains(fmt.Sprint(m), name) {
			t.Errorf("%v: %d %v", ports, code, m)
		}
	}
	e.end()
}

// TestEndpointNoImage: the program of an image is not started where no image is.
func TestEndpointNoImage(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	e.fails("image", map[string]any{"environmentId": e.environment("image", 8000, 8000, 8000)}, "only where Docker or Podman runs the image")
	e.end()
}
