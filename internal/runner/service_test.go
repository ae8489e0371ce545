//go:build linux

package runner_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
)

// codeServer stands in for VS Code in a browser: it answers at the port that it is told, and leaves
// its process id.
const codeServer = `#!/usr/bin/env python3
import http.server, os, sys
open("code.pid", "w").write(str(os.getpid()))
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ["HASHED_PASSWORD"].encode())
    def log_message(self, *a): pass
port = int(sys.argv[sys.argv.index("--bind-addr") + 1].rpartition(":")[2])
http.server.HTTPServer(("127.0.0.1", port), H).serve_forever()
`

// TestServices: a service of a job is started beside its command and ends with it; one whose
// program is not there fails, and says what to add.
func TestServices(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	bin := t.TempDir()
	for name, text := range map[string]string{
		"code-server": codeServer,
		"python":      "#!/bin/sh\nexec " + python + " -S \"$@\"\n", // without packages
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t, `while [ ! -e go ]; do sleep 0.05; done; echo done`)
	b.options.Base = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	b.launch.Services = map[string]berth.LaunchService{
		"../editor": {Type: berth.ServiceVSCode, Base: "/x", Secret: "sesame"},
		"board":     {Type: berth.ServiceTensorBoard, Base: "/y", Secret: "s", LogDir: "${{outputs.nothing}}"},
		"lab":       {Type: berth.ServiceJupyterLab, Base: "/z", Secret: "s"},
	}
	wd := filepath.Join(b.options.Dir, "wd")
	report := b.options.Report
	var last map[string]berth.ServiceState
	answer := ""
	b.options.Report = func(r berth.Report) {
		report(r)
		if r.Services == nil {
			return
		}
		last = r.Services
		if answer == "" && last["../editor"].Status == berth.ServiceRunning {
			answer = get(t, last["../editor"].Port)
		}
		for _, s := range last {
			if s.Status == berth.ServiceStarting {
				return
			}
		}
		if err := os.WriteFile(filepath.Join(wd, "go"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	if exit := b.run(); !exit.OK() {
		t.Fatalf("%+v", exit)
	}
	if answer != "sesame" {
		t.Errorf("the service answers %q", answer)
	}
	if s := last["board"]; s.Status != berth.ServiceFailed || !strings.Contains(s.Error, "log_dir: ") {
		t.Errorf("board: %+v", s)
	}
	if s := last["lab"]; s.Status != berth.ServiceFailed || s.Error != "jupyterlab is not in the environment: add it to its packages" {
		t.Errorf("lab: %+v", s)
	}
	pid, err := os.ReadFile(filepath.Join(wd, "code.pid"))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // it is killed, and dies when it gets a CPU
		state, err := os.ReadFile(filepath.Join("/proc", string(pid), "cmdline"))
		if err != nil || len(state) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the service outlives the command: %s", state)
		}
	}
	if strings.TrimSpace(b.log()) != "done" {
		t.Errorf("the log of the command has %q", b.log())
	}
}

func get(t *testing.T, port int) string {
	t.Helper()
	res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer res.Body.Close()
	body := make([]byte, 64)
	n, _ := res.Body.Read(body)
	return string(body[:n])
}
