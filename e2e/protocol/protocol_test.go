// Package protocol calls servers behind online endpoints with clients of their protocols that
// others wrote.
package protocol_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// zone is where the server of these tests gives endpoints host names.
const zone = "score.example.org"

// served is an endpoint with a server of the user's own.
type served struct {
	t      *testing.T
	python string
	s      *world.Server
	port   string
	key    string
	prefix string // path of the endpoint, without a slash at its end
}

// serve deploys a Python file as the endpoint echo.
func serve(t *testing.T, file string, packages ...string) *served {
	t.Helper()
	python := world.Python(t, packages...)
	home := world.Home(t)
	if err := os.WriteFile(filepath.Join(home, "berth.yaml"), []byte("endpoint_zone: "+zone+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &served{t: t, python: python, s: world.StartIn(t, home)}
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, file), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	e.run("deploy", dir, "--name", "echo", "--workers", "8", "--timeout", "30s", "--command", "exec "+python+` "$AZUREML_MODEL_DIR"/files/`+file)
	e.key = e.run("online-endpoint", "get-credentials", "-n", "echo", "--query", "primaryKey", "-o", "tsv")
	u, err := url.Parse(e.s.URL)
	if err != nil {
		t.Fatal(err)
	}
	e.port = u.Port()
	e.prefix = "/berth/endpoints/" + strings.Join([]string{e.s.Sub, e.s.Group, e.s.Workspace}, "/") + "/echo"
	return e
}

func (e *served) run(args ...string) string {
	e.t.Helper()
	cmd := e.s.Command(args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		e.t.Fatalf("berth %q: %v\n%s\n%s", args, err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// client runs a client, and checks what it says.
func (e *served) client(t *testing.T, want string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), e.python, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s\n%s", err, out, want, errs.String())
	}
}

// TestGRPC: grpcio calls a server of grpcio by the path of its endpoint and by its host name: calls
// and streams, their ends and their trailers, and the endpoint's own refusals in gRPC's codes.
func TestGRPC(t *testing.T) {
	e := serve(t, "server.py", "grpcio==1.76.0")
	const credential = "UNAUTHENTICATED the key or token is not one of this endpoint, or there is no such endpoint: send Authorization: Bearer KEY\n"
	const want = "unary: echo hello OK x-key=none x-seen=yes\naborted: FAILED_PRECONDITION no such model: café 100%\nno method: UNIMPLEMENTED Method not found!\n" +
		"no key: " + credential + "wrong key: " + credential + "chat: got one\nchat: got two\nchat: [] OK\nlarge: 3145733\nat once: 50\n"
	ca := filepath.Join(filepath.Dir(e.s.CABundle), "ca.pem")
	t.Run("path", func(t *testing.T) { e.client(t, want, "client.py", ca, e.key, "localhost:"+e.port, e.prefix) })
	t.Run("host", func(t *testing.T) {
		e.client(t, want, "client.py", ca, e.key, "127.0.0.1:"+e.port, "", "echo."+zone+":"+e.port)
	})
}

// TestWebSocket: the websockets package speaks with a server of its own behind an endpoint, by path
// and by host name.
func TestWebSocket(t *testing.T) {
	e := serve(t, "echo.py", "websockets==15.0.1")
	const want = "echo one\necho two\nlarge: True\nrefused: 401\nrefused: 401\n"
	ca := filepath.Join(filepath.Dir(e.s.CABundle), "ca.pem")
	t.Run("path", func(t *testing.T) {
		e.client(t, want, "talk.py", ca, e.key, "wss://localhost:"+e.port+e.prefix+"/talk", e.port)
	})
	t.Run("host", func(t *testing.T) {
		e.client(t, want, "talk.py", ca, e.key, "wss://echo."+zone+":"+e.port+"/talk", e.port)
	})
}
