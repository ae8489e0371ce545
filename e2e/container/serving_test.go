//go:build engines

package container_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// imageServer is the server that an image brings.
const imageServer = `
import http.server, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer("well" if self.path in ("/live", "/ready") else "lost")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "m.txt")) as f:
            self.answer(" ".join([self.path, sys.argv[1], os.environ["FROM_IMAGE"], os.getcwd(), f.read(), body]))

    def answer(self, text):
        self.send_response(404 if text == "lost" else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

http.server.ThreadingHTTPServer(("", 18501), Handler).serve_forever()
`

// TestServerOfAnImage deploys an image with a server of its own, as in the public samples of custom
// containers: its program, folder and variables are the image's, its routes the environment's.
func TestServerOfAnImage(t *testing.T) {
	host := start(t, "docker", image(t))
	t.Setenv("DOCKER_HOST", host)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"context/server.py":  imageServer,
		"context/Dockerfile": "FROM localhost/python:1\nCOPY server.py /srv/app/server.py\nWORKDIR /srv/app\nENV FROM_IMAGE=yes\nENTRYPOINT [\"python3\", \"server.py\"]\nCMD [\"it's an argument\"]\n",
		"m.txt":              "weights",
		"request.json":       `"asked"`,
		"blue.yml": `
name: blue
endpoint_name: half
model:
  path: m.txt
environment:
  image: localhost/server:1
  inference_config:
    liveness_route: {port: 18501, path: /live}
    readiness_route: {port: 18501, path: /ready}
    scoring_route: {port: 18501, path: "/v1/models/half:predict"}
instance_type: Standard_DS3_v2
instance_count: 1
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("docker", "-H", host, "build", "-t", "localhost/server:1", filepath.Join(dir, "context"))
	build.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := world.Start(t)
	run := func(args ...string) string {
		t.Helper()
		cmd := s.Command(args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			logs, _ := s.Command("endpoint", "logs", "half", "blue").CombinedOutput()
			t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, out, logs)
		}
		return string(out)
	}
	run("online-endpoint", "create", "-n", "half")
	run("online-deployment", "create", "-f", "blue.yml", "--all-traffic")
	got := run("online-endpoint", "invoke", "-n", "half", "-r", "request.json")
	if want := `/v1/models/half:predict it's an argument yes /srv/app weights "asked"`; strings.TrimSpace(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	run("online-endpoint", "delete", "-n", "half", "--yes")
}
