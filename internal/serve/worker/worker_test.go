package worker_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/serve/worker"
)

// start runs the worker for a script of testdata and returns where its workers listen.
func start(t *testing.T, script string, env ...string) (addresses []string, process *os.Process) {
	t.Helper()
	return startIn(t, "python3", script, env...)
}

// startIn does so with a Python of its own.
func startIn(t *testing.T, python, script string, env ...string) (addresses []string, process *os.Process) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), python, "-c", worker.Boot)
	cmd.Env = append(os.Environ(), append([]string{worker.SourceVariable + "=" + worker.Source(), "AZUREML_ENTRY_SCRIPT=" + filepath.Join("testdata", script)}, env...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(t.Output(), lines) // for people
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-read
		cmd.Wait()
	})
	ports, ok := strings.CutPrefix(first, "berth-worker: ports ")
	if !ok {
		t.Fatalf("the first line is %q", first)
	}
	for _, p := range strings.Fields(ports) {
		at := "http://127.0.0.1:" + p
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			resp, err := http.Get(at + "/")
			if err == nil {
				resp.Body.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		addresses = append(addresses, at)
	}
	return addresses, cmd.Process
}

// exchange is a request, and what Azure's server answered to it.
type exchange struct {
	Method, Path  string
	Body          json.RawMessage // a text, bytes as numbers, or null
	Headers       map[string]string
	Status        int
	AnswerHeaders map[string]string
	Answer        string // each byte a character
}

func (x exchange) body(t *testing.T) io.Reader {
	t.Helper()
	var text string
	if json.Unmarshal(x.Body, &text) == nil {
		return strings.NewReader(text)
	}
	var numbers []int
	if err := json.Unmarshal(x.Body, &numbers); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(numbers))
	for i, n := range numbers {
		b[i] = byte(n)
	}
	return bytes.NewReader(b)
}

var guid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// TestContract: the worker answers as azureml-inference-server-http 1.5.1 does, whose answers are
// in testdata: the same status, body and headers.
func TestContract(t *testing.T) {
	for _, name := range []string{"plain", "raw", "headers", "plain.more", "raw.more", "headers.more"} { // more is by record.py
		t.Run(name, func(t *testing.T) {
			script, _, _ := strings.Cut(name, ".")
			at, _ := start(t, script+".py")
			for _, x := range recorded(t, name) {
				x.check(t, at[0])
			}
		})
	}
}

// recorded is a file of exchanges.
func recorded(t *testing.T, name string) (all []exchange) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestContractSchema is TestContract for scripts with schemas, in an environment that has the
// package of their decorators. Their descriptions (OpenAPI) are equal as documents.
func TestContractSchema(t *testing.T) {
	python := world.Python(t, "inference-schema==1.8", "numpy==2.4.6", "pandas==3.1.1")
	at, _ := startIn(t, python, "schema.py")
	for _, x := range recorded(t, "schema.more") {
		x.check(t, at[0])
	}
}

func (x exchange) check(t *testing.T, at string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), x.Method, at+x.Path, x.body(t))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range x.Headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	latin := make([]rune, len(b))
	for i, c := range b {
		latin[i] = rune(c)
	}
	what := x.Method + " " + x.Path + " " + string(x.Body)
	if resp.StatusCode != x.Status || string(latin) != x.Answer && !(strings.Contains(x.Path, "/swagger.json") && equalJSON(string(latin), x.Answer)) {
		t.Errorf("%s: %d %q, want %d %q", what, resp.StatusCode, b, x.Status, x.Answer)
	}
	for _, k := range []string{
		"content-type", "x-ms-run-function-failed", "x-ms-request-id", "x-ms-client-request-id", "x-request-id", "traceid", "retry-after", "x-a",
		"x-ms-run-fn-exec-ms", "x-ms-server-version", "allow",
	} {
		got, want := strings.Join(resp.Header.Values(k), ", "), x.AnswerHeaders[k]
		if want == "GUID" && guid.MatchString(got) || want == "ANY" && got != "" {
			continue
		}
		if got != want {
			t.Errorf("%s: header %s is %q, want %q", what, k, got, want)
		}
	}
}

// equalJSON says whether two texts are the same document.
func equalJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// TestWorkerDies: a worker that dies under a request is replaced, on the same port.
func TestWorkerDies(t *testing.T) {
	at, _ := start(t, "plain.py", "WORKER_COUNT=2")
	if len(at) != 2 {
		t.Fatalf("%d workers", len(at))
	}
	for range 3 {
		if resp, err := http.Post(at[1]+"/score", "application/json", strings.NewReader(`{"k":"exit"}`)); err == nil {
			resp.Body.Close()
			t.Fatalf("an answer of a worker that died: %d", resp.StatusCode)
		}
		resp, err := http.Post(at[1]+"/score", "application/json", strings.NewReader(`{"k":"dict"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Error(resp.StatusCode)
		}
	}
}

// TestWorkerSecret: a replica answers nobody who does not know its secret, but says that it is
// there.
func TestWorkerSecret(t *testing.T) {
	at, _ := start(t, "plain.py", "BERTH_REPLICA_SECRET=s3cret")
	for secret, want := range map[string]int{"": 403, "other": 403, "s3cret": 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at[0]+"/score", strings.NewReader(`{"k":"dict"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Berth-Replica", secret)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with %q: %d, want %d", secret, resp.StatusCode, want)
		}
	}
}

// TestModelGoesWithTheTask: the folder where scripts look for the model is in the task's directory,
// which is deleted with it.
func TestModelGoesWithTheTask(t *testing.T) {
	tmp, task := t.TempDir(), t.TempDir()
	model := filepath.Join(t.TempDir(), "m.bin")
	if err := os.WriteFile(model, []byte("weights"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "plain.py", "TMPDIR="+tmp, "BERTH_TASK_DIR="+task, "AZURE_ML_INPUT_model="+model, "BERTH_MODEL_BASE=m.bin", "BERTH_MODEL_NAME=big", "BERTH_MODEL_VERSION=3")
	if left, err := filepath.Glob(filepath.Join(tmp, "berth-model-*")); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	found, err := filepath.Glob(filepath.Join(task, "berth-model-*/azureml-models/big/3/m.bin"))
	if err != nil || len(found) != 1 {
		t.Errorf("the model is at %v, %v", found, err)
	}
}

// TestCommandSecret: a server of the user's own sees the secret of its replica in no request, also
// not in later ones of a connection, whatever came before, and another protocol passes.
func TestCommandSecret(t *testing.T) {
	command := "exec python3 " + filepath.Join("testdata", "echo.py")
	at, _ := start(t, "plain.py", "BERTH_REPLICA_SECRET=s3cret", "BERTH_COMMAND="+command)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, at[0]+"/", nil)
		req.Header.Set("X-Berth-Nonce", "n")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(resp.Status)
		}
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(at[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	answers := bufio.NewReader(c)
	for i, more := range []string{
		"\r\n",
		"Content-Length: 5\r\n\r\nhello",
		"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n",
		"Connection: upgrade\r\nUpgrade: no\r\n\r\n",
		"Content-Length: 5\r\n\r\nhello",
	} {
		io.WriteString(c, "POST /"+strconv.Itoa(i)+" HTTP/1.1\r\nHost: x\r\nX-Berth-Replica: s3cret\r\nX-Mine: yes\r\n"+more)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		b, err := io.ReadAll(resp.Body)
		if text := strings.ToLower(string(b)); err != nil || !strings.Contains(text, "post /"+strconv.Itoa(i)) || !strings.Contains(text, "x-mine: yes") || strings.Contains(text, "s3cret") ||
			strings.Contains(more, "lo") != strings.HasSuffix(text, "hello") {
			t.Errorf("%d: %q, %v", i, b, err)
		}
	}
	io.WriteString(c, "GET /raw HTTP/1.1\r\nHost: x\r\nX-Berth-Replica: s3cret\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
	resp, err := http.ReadResponse(answers, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	io.WriteString(c, "any bytes")
	got := make([]byte, len("any bytes"))
	if _, err := io.ReadFull(answers, got); err != nil || string(got) != "any bytes" {
		t.Errorf("%q, %v", got, err)
	}
}

// begin runs the worker with a server of the user's own, and returns where it listens; its output
// goes to the channel, which is closed when it has ended.
func begin(t *testing.T, env ...string) (address string, output <-chan string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "python3", "-c", worker.Boot)
	cmd.Env = append(os.Environ(), append([]string{worker.SourceVariable + "=" + worker.Source(), "BERTH_REPLICA_SECRET=s3cret"}, env...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("it says nothing")
	}
	port, ok := strings.CutPrefix(lines.Text(), "berth-worker: ports ")
	if !ok {
		t.Fatalf("the first line is %q", lines.Text())
	}
	rest := make(chan string, 1000)
	go func() {
		defer close(rest)
		for lines.Scan() {
			rest <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		for range rest {
		}
		cmd.Wait()
	})
	return "127.0.0.1:" + port, rest
}

// ready waits until a replica says that it is.
func readyAt(t *testing.T, address string) {
	t.Helper()
	until(t, "it is ready", func() bool {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
		req.Header.Set("X-Berth-Nonce", "n")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// TestCommandSocket: a server of the user's own may listen on a socket, which other users of the
// machine cannot open; then its port is not used.
func TestCommandSocket(t *testing.T) {
	script := filepath.Join(t.TempDir(), "server.py")
	text := `import http.server, os, socketserver

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%o" % (os.stat(os.path.dirname(os.environ["SOCKET"])).st_mode & 0o777))

    def address_string(self):
        return "-"

socketserver.UnixStreamServer(os.environ["SOCKET"], Handler).serve_forever()
`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address, _ := begin(t, "BERTH_COMMAND=exec python3 "+script)
	readyAt(t, address)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/x", nil)
	req.Header.Set("X-Berth-Replica", "s3cret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "700" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestCommandPortTaken: requests do not go to another program that got the port of the user's
// server before it.
func TestCommandPortTaken(t *testing.T) {
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		t.Skip("who listens is read from /proc")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	address, output := begin(t, "BERTH_COMMAND=exec sleep 600", "BERTH_COMMAND_PORT="+port)
	if l, err = net.Listen("tcp", "127.0.0.1:"+port); err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 100)
	other := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("X-Mine") })}
	go other.Serve(l)
	defer other.Close()
	said := ""
	for line := range output { // until it has ended
		said += line + "\n"
	}
	if !strings.Contains(said, "port "+port+" is another program's") {
		t.Errorf("it says %s", said)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("it listens still")
	}
}
