//go:build unix

package ssh_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/driver/ssh"
	"github.com/berthml/berth/internal/driver/ssh/sshtest"
	"github.com/berthml/berth/internal/runner/data/blobtest"
	"github.com/berthml/berth/internal/runner/host"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && (os.Args[1] == "_host" || os.Args[1] == "_ssh") {
		run := local.HostMain
		if os.Args[1] == "_ssh" {
			run = func(ctx context.Context, args []string) error { return ssh.Main(ctx, args, os.Stdin, os.Stdout) }
		}
		if err := run(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a race-enabled host would take a second to end
	code := m.Run()
	if programs != "" {
		os.RemoveAll(programs)
	}
	os.Exit(code)
}

// programs is the directory of programs that the machines of all tests share: copying them again
// takes longer than the rest.
var programs string

// withPrograms lets the account's home share them.
func withPrograms(t *testing.T, home string) {
	t.Helper()
	var err error
	if programs == "" {
		if programs, err = os.MkdirTemp("", "bp"); err != nil {
			t.Fatal(err)
		}
	}
	if err = os.MkdirAll(filepath.Join(home, ".berth/remote"), 0o700); err == nil {
		err = os.Symlink(programs, filepath.Join(home, ".berth/remote/bin"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// far is a machine with an SSH server, and the server that connects to it.
type far struct {
	dir  string // the server's
	sshd *sshtest.Server
	key  string
	api  *httptest.Server
	d    driver.Driver
	keys map[string]string // host keys
	now  *driver.Connection
	dial func(context.Context) (net.Conn, error) // to the server; nil is the usual way

	mu    sync.Mutex
	logs  map[string][]byte
	blobs *blobtest.Server
}

func open(t *testing.T) *far {
	t.Helper()
	f := openBare(t)
	withPrograms(t, f.sshd.Home)
	return f
}

// openBare is open with a machine that has no program yet.
func openBare(t *testing.T) *far {
	t.Helper()
	home, err := os.MkdirTemp("", "bs")
	if err != nil {
		t.Fatal(err)
	}
	return openIn(t, home)
}

// openIn is openBare with the home of the account there.
func openIn(t *testing.T, home string) *far {
	t.Helper()
	signer, key := sshtest.NewKey(t)
	f := &far{dir: t.TempDir(), key: key, logs: map[string][]byte{}, blobs: blobtest.New(t)}
	f.sshd = sshtest.Start(t, home, signer.PublicKey())
	f.api = httptest.NewUnstartedServer(f)
	f.api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f.api.StartTLS()
	t.Cleanup(func() { f.close(t) })
	f.reopen(t)
	return f
}

// reopen is what a server does that was started again.
func (f *far) reopen(t *testing.T) driver.Driver {
	t.Helper()
	d, err := ssh.Open(f.config(f.dir, nil))
	if err != nil {
		t.Fatal(err)
	}
	f.d = d
	return d
}

// config is the configuration of a driver that keeps its files in dir.
func (f *far) config(dir string, properties []byte) driver.Config {
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return driver.Config{Name: "vm", Dir: dir, Properties: properties, Host: []string{os.Args[0], "_host"}, Log: log, Dial: func(ctx context.Context) (net.Conn, error) {
		if f.dial != nil {
			return f.dial(ctx)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", f.api.Listener.Addr().String())
	}}
}

// properties is the compute's document.
func (f *far) properties(more map[string]any) []byte {
	h, port := f.sshd.HostPort()
	inner := map[string]any{"address": h, "sshPort": json.Number(port), "administratorAccount": map[string]any{"username": "me"}}
	for k, v := range more {
		inner[k] = v
	}
	b, _ := json.Marshal(map[string]any{"properties": map[string]any{"computeType": "VirtualMachine", "properties": inner}})
	return b
}

func (f *far) access() driver.Access {
	return driver.Access{Properties: f.properties(nil), HostKeys: f.keys, Secrets: map[string]string{"properties.administratorAccount.privateKeyData": f.key}}
}

func (f *far) connect(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := f.d.(driver.Connector).Connect(ctx, f.access())
	if err != nil {
		t.Fatal(err)
	}
	f.now, f.keys = c, c.HostKeys
}

// agent is the agent's folder on the machine.
func (f *far) agent(t *testing.T) string {
	t.Helper()
	id, err := os.ReadFile(filepath.Join(f.dir, "agent-id"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(f.sshd.Home, ".berth/remote", string(id))
}

// pid is that of the agent.
func (f *far) pid(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.agent(t), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ PID int }
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v.PID
}

func (f *far) close(t *testing.T) {
	f.d.(io.Closer).Close()
	f.api.Close()
	f.sshd.Stop()
	defer os.RemoveAll(f.sshd.Home)
	if _, err := os.Stat(filepath.Join(f.dir, "agent-id")); err != nil {
		return
	}
	if _, err := os.Stat(filepath.Join(f.agent(t), "lock")); err != nil {
		return
	}
	_ = syscall.Kill(f.pid(t), syscall.SIGKILL)
	dir := filepath.Join(f.agent(t), "host")
	c := host.NewClient(dir)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if all, err := c.Tasks(ctx); err == nil {
		for _, s := range all {
			_ = c.Stop(ctx, s.Task, host.Stop{Grace: time.Millisecond})
		}
	}
	if err := host.Shutdown(ctx, dir); err != nil {
		t.Error(err)
	}
}

// ServeHTTP is the server as runners see it.
func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/st.blob.berth/") {
		f.blobs.ServeHTTP(w, r)
		return
	}
	b, _ := io.ReadAll(r.Body)
	if id, ok := strings.CutPrefix(r.URL.Path, "/runner/v1/tasks/"); ok {
		id = strings.TrimSuffix(id, "/log")
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.URL.Query().Get("offset") == strconv.Itoa(len(f.logs[id])) {
			f.logs[id] = append(f.logs[id], b...)
		}
		fmt.Fprintf(w, `{"size":%d}`, len(f.logs[id]))
		return
	}
	fmt.Fprint(w, "{}")
}

func (f *far) log(l berth.Launch) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.logs[string(l.Task)])
}

func (f *far) launch(n int, command string) berth.Launch {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.api.Certificate().Raw})
	return berth.Launch{
		Task: berth.TaskID(fmt.Sprintf("job-%d.1", n)), Job: fmt.Sprintf("job-%d", n), Attempt: 1, Command: command,
		Home: berth.Home{URL: f.api.URL, Token: "x", CA: string(ca)},
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		f := open(t)
		f.connect(t)
		x := f.fixture()
		x.Full = func(t *testing.T) (drivertest.Fixture, func()) {
			home, err := os.MkdirTemp("", "bf")
			if err != nil {
				t.Fatal(err)
			}
			fill, free := drivertest.SmallDisk(t, home, "4m")
			f := openIn(t, home)
			withPrograms(t, home)
			f.connect(t)
			if _, err := f.d.Probe(t.Context()); err != nil { // the host is there before the disk is full
				t.Fatal(err)
			}
			fill()
			return f.fixture(), free
		}
		return x
	})
}

// fixture is what the tests of the contract know about a machine.
func (f *far) fixture() drivertest.Fixture {
	n := 0
	return drivertest.Fixture{
		Driver: f.d,
		Launch: func(command string) berth.Launch { n++; return f.launch(n, command) },
		Log:    f.log,
		Reopen: func(t *testing.T) driver.Driver {
			f.d.(io.Closer).Close()
			d := f.reopen(t)
			f.connect(t)
			return d
		},
		Outputs: func(l *berth.Launch) func() map[string]string {
			url := strings.Replace(f.blobs.At("model"), f.blobs.URL, f.api.URL, 1)
			l.Outputs = map[string]berth.LaunchOutput{"model": {Type: "uri_folder", URL: url}}
			return func() map[string]string { return f.blobs.All("model/") }
		},
		Away: func(t *testing.T) func() {
			f.sshd.Cut()
			<-f.now.Ended
			return func() { f.connect(t) }
		},
		Left: func(t *testing.T) []string {
			left, _ := filepath.Glob(filepath.Join(f.agent(t), "host", "tasks", "*"))
			return left
		},
	}
}

// TestPastTerm: a machine carries nothing out for a server that leads no more, nor over another
// connection.
func TestPastTerm(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := openBare(t)
	f.connect(t)
	drivertest.PastTerm(ctx, t, f.d, f.launch(1, "true"), func() {
		first := f.now
		f.sshd.Cut()
		<-first.Ended
		f.connect(t)
	})
}

// TestCut cuts the connection, and then kills the agent too, while a task runs. The task goes on,
// its end and its whole log arrive once the server has connected again, and the program is copied
// once.
func TestCut(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := openBare(t)
	f.connect(t)
	gate := filepath.Join(f.sshd.Home, "gate")
	l := f.launch(1, "echo one; while ! test -e "+gate+"; do sleep 0.05; done; echo two; exit 3")
	h, err := f.d.Start(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	first := f.now
	f.sshd.Cut()
	if err := <-first.Ended; berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("the connection ended with %v", err)
	}
	if _, err := f.d.Observe(ctx); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("without a connection: %v", err)
	}
	f.connect(t)
	if f.now.Machine != first.Machine {
		t.Errorf("the machine was %s and is %s", first.Machine, f.now.Machine)
	}
	if again, err := f.d.Start(ctx, l); err != nil || again != h {
		t.Errorf("after the cut: %q, %v", again, err)
	}
	if err := syscall.Kill(f.pid(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-f.now.Ended
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.connect(t)
	if o := drivertest.Wait(ctx, t, f.d, l.Task); o.Exit == nil || o.Exit.Code != 3 {
		t.Errorf("exit %+v", o.Exit)
	}
	if got := f.log(l); got != "one\ntwo\n" {
		t.Errorf("log %q", got)
	}
	programs, err := filepath.Glob(filepath.Join(f.sshd.Home, ".berth/remote/bin/*"))
	if err != nil || len(programs) != 1 {
		t.Errorf("programs there: %v, %v", programs, err)
	}
}

// TestWrongMachine has a machine that shows another key than before: it is refused, whatever it
// would have let us do.
func TestWrongMachine(t *testing.T) {
	f := open(t)
	f.connect(t)
	f.sshd.Cut()
	<-f.now.Ended
	f.sshd.NewHostKey(t)
	before := f.sshd.Count()
	_, err := f.d.(driver.Connector).Connect(t.Context(), f.access())
	if berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "HOST KEY") {
		t.Errorf("%v", err)
	}
	if f.sshd.Count() != before {
		t.Error("it was logged in")
	}
}

// TestWrongSecrets has keys and passwords that do not open, and one that does.
func TestWrongSecrets(t *testing.T) {
	f := open(t)
	_, other := sshtest.NewKey(t)
	const key, password = "properties.administratorAccount.privateKeyData", "properties.administratorAccount.password"
	for name, c := range map[string]struct {
		secrets map[string]string
		code    berth.Code
		says    string
	}{
		"another key":    {map[string]string{key: other}, berth.Denied, "rejected the login of me"},
		"wrong password": {map[string]string{password: "guess"}, berth.Denied, "rejected the login of me"},
		"not a key":      {map[string]string{key: "-----BEGIN"}, berth.Invalid, "is not valid"},
		"nothing":        {nil, berth.Invalid, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			a := f.access()
			a.Secrets = c.secrets
			_, err := f.d.(driver.Connector).Connect(t.Context(), a)
			if berth.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			for _, s := range c.secrets {
				if err != nil && strings.Contains(err.Error(), s) {
					t.Error("the secret is in the error")
				}
			}
		})
	}
	a := f.access()
	a.Secrets = map[string]string{password: sshtest.Password}
	if _, err := f.d.(driver.Connector).Connect(t.Context(), a); err != nil {
		t.Error(err)
	}
}

// TestJump goes through another machine, and finds it changed later.
func TestJump(t *testing.T) {
	f := open(t)
	jump := sshtest.Start(t, t.TempDir(), f.sshd.Client())
	a := f.access()
	a.Properties = f.properties(map[string]any{"jumpHosts": []string{"you@" + jump.Addr}})
	c, err := f.d.(driver.Connector).Connect(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if jump.Count() != 1 || len(c.HostKeys) != 2 {
		t.Errorf("%d connections to the jump host, host keys %v", jump.Count(), c.HostKeys)
	}
	jump.NewHostKey(t)
	a.HostKeys = c.HostKeys
	if _, err := f.d.(driver.Connector).Connect(t.Context(), a); berth.CodeOf(err) != berth.Denied {
		t.Errorf("another jump host: %v", err)
	}
}

// TestNoise has an account whose shell talks before it does anything.
func TestNoise(t *testing.T) {
	f := open(t)
	f.sshd.Startup("echo Welcome; echo to this machine >&2; ")
	f.connect(t)
	if _, err := f.d.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNoRoom has an account that cannot keep the program, and says so.
func TestNoRoom(t *testing.T) {
	f := openBare(t)
	f.sshd.Startup("ulimit -f 1; trap '' XFSZ; ")
	_, err := f.d.(driver.Connector).Connect(t.Context(), f.access())
	if berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "copying the program") {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.sshd.Home, ".berth/remote/bin/.*new*")); len(left) > 0 {
		t.Errorf("left there: %v", left)
	}
	f.sshd.Startup("")
	f.connect(t)
}

// TestOneConnection has many tasks: they share one connection.
func TestOneConnection(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := open(t)
	f.connect(t)
	const n = 100
	for i := range n {
		if _, err := f.d.Start(ctx, f.launch(i, fmt.Sprintf("echo task %d", i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		l := f.launch(i, "")
		if o := drivertest.Wait(ctx, t, f.d, l.Task); o.Exit == nil || o.Exit.Code != 0 {
			t.Errorf("task %d: %+v", i, o.Exit)
		}
		if want := fmt.Sprintf("task %d\n", i); f.log(l) != want {
			t.Errorf("log %q, want %q", f.log(l), want)
		}
	}
	if f.sshd.Count() != 1 {
		t.Errorf("%d connections", f.sshd.Count())
	}
}
