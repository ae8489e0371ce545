//go:build !windows

package dialout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/local"
	"github.com/berthml/berth/internal/runner/data/blobtest"
	"github.com/berthml/berth/internal/runner/host"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && (os.Args[1] == "_host" || os.Args[1] == "_agent") {
		run := local.HostMain
		if os.Args[1] == "_agent" {
			run = agentMain
		}
		if err := run(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a race-enabled host would take a second to end
	os.Exit(m.Run())
}

// agentMain is the agent's process: its directory is all that it has.
func agentMain(ctx context.Context, args []string) error {
	dir := args[0]
	b, err := os.ReadFile(filepath.Join(dir, "join.json"))
	if err != nil {
		return err
	}
	a := dialout.Agent{ID: "machine-1", Host: "there", Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), LastPause: 200 * time.Millisecond}
	if err := json.Unmarshal(b, &a.Join); err != nil {
		return err
	}
	a.Driver, err = local.Open(driver.Config{Name: "local", Dir: filepath.Join(dir, "host"), Host: []string{os.Args[0], "_host"}})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// far is a machine with an agent, and the server that it connects to.
type far struct {
	dir string
	srv *httptest.Server
	*exec.Cmd

	mu    sync.Mutex
	d     *dialout.Driver
	conns []net.Conn
	up    chan struct{} // one for each connection
	logs  map[string][]byte
	blobs *blobtest.Server
}

const token = "the-token"

func open(t *testing.T) *far {
	t.Helper()
	dir, err := os.MkdirTemp("", "bd")
	if err != nil {
		t.Fatal(err)
	}
	return openIn(t, dir)
}

// openIn is open with the directory of the machine.
func openIn(t *testing.T, dir string) *far {
	t.Helper()
	f := &far{dir: dir, up: make(chan struct{}, 100), logs: map[string][]byte{}, blobs: blobtest.New(t)}
	f.reopen(t)
	f.srv = httptest.NewTLSServer(f)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.srv.Certificate().Raw})
	join, err := json.Marshal(dialout.Join{Server: f.srv.URL, Workspace: berth.Workspace{Subscription: "s", Group: "g", Name: "w"}, Compute: "laptop", Token: token, CA: string(ca)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "join.json"), join, 0o600); err != nil {
		t.Fatal(err)
	}
	f.start(t)
	t.Cleanup(func() { f.close(t) })
	return f
}

// start starts the agent's process and returns when it is connected.
func (f *far) start(t *testing.T) {
	t.Helper()
	f.Cmd = exec.Command(os.Args[0], "_agent", f.dir)
	f.Stderr = os.Stderr
	if !testing.Verbose() {
		f.Stderr = nil
	}
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	f.connected(t)
}

func (f *far) connected(t *testing.T) {
	t.Helper()
	select {
	case <-f.up:
	case <-time.After(60 * time.Second):
		t.Fatal("the agent does not connect")
	}
}

func (f *far) kill(t *testing.T) {
	t.Helper()
	_ = f.Process.Kill()
	_ = f.Wait()
}

func (f *far) close(t *testing.T) {
	f.kill(t)
	f.driver().Close()
	f.srv.Close()
	dir := filepath.Join(f.dir, "host")
	c := host.NewClient(dir)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if all, err := c.Tasks(ctx); err == nil {
		for _, s := range all {
			_ = c.Stop(ctx, s.Task, host.Stop{Grace: time.Millisecond})
		}
	}
	if err := host.Shutdown(ctx, dir); err != nil {
		t.Error(err)
	}
	os.RemoveAll(f.dir)
}

func (f *far) driver() *dialout.Driver {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.d
}

// reopen is what a server does that was started again.
func (f *far) reopen(t *testing.T) *dialout.Driver {
	t.Helper()
	d, err := dialout.Open(driver.Config{Name: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.d = d.(*dialout.Driver)
	return f.d
}

// cut closes the connections without a word.
func (f *far) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

// ServeHTTP is the server: it takes the agent's connection, reports and logs.
func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/st.blob.berth/") {
		f.blobs.ServeHTTP(w, r)
		return
	}
	if id, ok := strings.CutPrefix(r.URL.Path, "/runner/v1/tasks/"); ok {
		b, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		id = strings.TrimSuffix(id, "/log")
		if r.URL.Query().Get("offset") == strconv.Itoa(len(f.logs[id])) { // what is sent again is not added again
			f.logs[id] = append(f.logs[id], b...)
		}
		fmt.Fprintf(w, `{"size":%d}`, len(f.logs[id]))
		return
	}
	if r.URL.Path != "/runner/v1/agents/s/g/w/laptop" {
		fmt.Fprint(w, "{}")
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+token {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":{"message":"the token is not good"}}`)
		return
	}
	if err := dialout.Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := dialout.Upgrade(w)
	if err != nil {
		return
	}
	if _, err := f.driver().Accept(context.Background(), c); err != nil {
		return
	}
	f.mu.Lock()
	f.conns = append(f.conns, c)
	f.mu.Unlock()
	f.up <- struct{}{}
}

// log is what arrived of a task's log.
func (f *far) log(l berth.Launch) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.logs[string(l.Task)])
}

func (f *far) launch(n int, command string) berth.Launch {
	id := berth.TaskID(fmt.Sprintf("job-%d.1", n))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.srv.Certificate().Raw})
	return berth.Launch{Task: id, Job: fmt.Sprintf("job-%d", n), Attempt: 1, Command: command, Home: berth.Home{URL: f.srv.URL, Token: "x", CA: string(ca)}}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Fixture {
		f := open(t).fixture()
		f.Full = func(t *testing.T) (drivertest.Fixture, func()) {
			dir, err := os.MkdirTemp("", "bf")
			if err != nil {
				t.Fatal(err)
			}
			fill, free := drivertest.SmallDisk(t, dir, "4m")
			f := openIn(t, dir)
			if _, err := f.driver().Probe(t.Context()); err != nil { // the host is there before the disk is full
				t.Fatal(err)
			}
			fill()
			return f.fixture(), free
		}
		return f
	})
}

// fixture is what the tests of the contract know about a machine.
func (f *far) fixture() drivertest.Fixture {
	n := 0
	return drivertest.Fixture{
		Driver: f.driver(),
		Launch: func(command string) berth.Launch { n++; return f.launch(n, command) },
		Log:    f.log,
		Reopen: func(t *testing.T) driver.Driver {
			old := f.driver()
			d := f.reopen(t)
			old.Close()
			f.connected(t)
			return d
		},
		Outputs: func(l *berth.Launch) func() map[string]string {
			url := strings.Replace(f.blobs.At("model"), f.blobs.URL, f.srv.URL, 1)
			l.Outputs = map[string]berth.LaunchOutput{"model": {Type: "uri_folder", URL: url}}
			return func() map[string]string { return f.blobs.All("model/") }
		},
		Away: func(t *testing.T) func() {
			f.kill(t)
			return func() { f.start(t) }
		},
		Left: func(*testing.T) []string {
			left, _ := filepath.Glob(filepath.Join(f.dir, "host", "tasks", "*"))
			return left
		},
	}
}

// retrying asks again while the agent is away, as [driver.Target] and the control loop do.
type retrying struct{ driver.Driver }

func (r retrying) Observe(ctx context.Context) (all []driver.Observed, err error) {
	for {
		all, err = r.Driver.Observe(ctx)
		if berth.CodeOf(err) != berth.Unavailable || ctx.Err() != nil {
			return all, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestPastTerm: a machine carries nothing out for a server that leads no more, nor after its agent
// was started anew.
func TestPastTerm(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	f := open(t)
	drivertest.PastTerm(ctx, t, f.driver(), f.launch(1, "true"), func() {
		f.kill(t)
		f.start(t)
	})
}

// TestAway cuts the connection, then kills the agent, while a task runs. The task goes on, its end
// and its whole log arrive, and meanwhile the driver says that the machine is away.
func TestAway(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	f := open(t)
	d := f.driver()
	gate := filepath.Join(f.dir, "gate")
	l := f.launch(1, "echo one; while ! test -e "+gate+"; do sleep 0.05; done; echo two; exit 3")
	h, err := d.Start(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	f.cut()
	f.connected(t)
	if again, err := (retrying{d}).start(ctx, l); err != nil || again != h {
		t.Errorf("after the cut: %q, %v", again, err)
	}
	f.kill(t)
	for { // until the end of the connection is noticed
		if _, err := d.Observe(ctx); err != nil {
			if berth.CodeOf(err) != berth.Unavailable {
				t.Fatalf("away: %v", err)
			}
			break
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.start(t)
	o := drivertest.Wait(ctx, t, retrying{d}, l.Task)
	if o.Exit == nil || o.Exit.Code != 3 {
		t.Errorf("exit %+v", o.Exit)
	}
	if got := f.log(l); got != "one\ntwo\n" {
		t.Errorf("log %q", got)
	}
}

func (r retrying) start(ctx context.Context, l berth.Launch) (h driver.Handle, err error) {
	for {
		h, err = r.Start(ctx, l)
		if berth.CodeOf(err) != berth.Unavailable || ctx.Err() != nil {
			return h, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestAgain has a second connection of the same machine: the first is closed and says why.
func TestAgain(t *testing.T) {
	d, err := dialout.Open(driver.Config{Name: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.(io.Closer).Close()
	accept := func() (<-chan error, net.Conn) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		ended, err := d.(driver.Acceptor).Accept(t.Context(), ours)
		if err != nil {
			t.Fatal(err)
		}
		return ended, theirs
	}
	first, _ := accept()
	second, theirs := accept()
	if err := <-first; berth.CodeOf(err) != berth.Conflict {
		t.Errorf("the first connection ended with %v", err)
	}
	theirs.Close()
	if err := <-second; berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("the second connection ended with %v", err)
	}
	if _, err := d.Probe(t.Context()); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "not connected") {
		t.Errorf("%v", err)
	}
}

// TestHalfOpen has an agent whose connection stands and says nothing any more: the heartbeat finds
// it.
func TestHalfOpen(t *testing.T) {
	d := dialout.OpenWithPings(20*time.Millisecond, 20*time.Millisecond)
	defer d.Close()
	ours, theirs := net.Pipe()
	go io.Copy(io.Discard, theirs)
	ended, err := d.Accept(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if berth.CodeOf(err) != berth.Unavailable {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		t.Error("a connection that is dead stays")
	}
}

// TestRefused has a token that is not good: the agent says so and ends.
func TestRefused(t *testing.T) {
	f := &far{}
	f.srv = httptest.NewTLSServer(f)
	defer f.srv.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.srv.Certificate().Raw})
	a := dialout.Agent{Log: slog.New(slog.DiscardHandler), Join: dialout.Join{
		Server: f.srv.URL, Workspace: berth.Workspace{Subscription: "s", Group: "g", Name: "w"}, Compute: "laptop", Token: "wrong", CA: string(ca),
	}}
	if err := a.Run(t.Context()); berth.CodeOf(err) != berth.Unauthenticated || !strings.Contains(err.Error(), "the token is not good") {
		t.Errorf("%v", err)
	}
	a.Join.Server = "http://" + strings.TrimPrefix(f.srv.URL, "https://")
	if err := a.Run(t.Context()); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("without TLS: %v", err)
	}
}

// answering is a driver whose agent gives one answer to everything.
func answering(t *testing.T, status int, body string) driver.Driver {
	t.Helper()
	d, err := dialout.Open(driver.Config{Name: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(io.Closer).Close() })
	ours, theirs := net.Pipe()
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: &p, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.Copy(w, bytes.NewReader([]byte(body)))
	})}
	t.Cleanup(func() { srv.Close() })
	l := &listener{c: make(chan net.Conn, 1)}
	l.c <- theirs
	go srv.Serve(l)
	if _, err := d.(driver.Acceptor).Accept(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestHostileAnswers has an agent that answers what a broken or hostile one might.
func TestHostileAnswers(t *testing.T) {
	for name, body := range map[string]string{
		"not JSON":  "<html>",
		"wrong":     `{"a":1}`,
		"too large": "[" + strings.Repeat(" ", 65<<20) + "]",
		"too many":  "[" + strings.Repeat("{},", 1<<20) + "{}]",
	} {
		t.Run(name, func(t *testing.T) {
			if all, err := answering(t, 200, body).Observe(t.Context()); err == nil || len(all) != 0 {
				t.Errorf("%d tasks, %v", len(all), err)
			}
		})
	}
}

// TestHostileErrors: what an agent says went wrong is one short line with a code that there is.
func TestHostileErrors(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for name, c := range map[string]struct {
		body string
		code berth.Code
		msg  string
	}{
		"code that is none": {`{"code":"root","message":"m"}`, berth.Unavailable, "m"},
		"no code":           {`{"code":"","message":"m"}`, berth.Unavailable, "m"},
		"known code":        {`{"code":"conflict","message":"m"}`, berth.Conflict, "m"},
		"lines and escapes": {`{"code":"conflict","message":"a\nb\u001b[31mc"}`, berth.Conflict, "a b [31mc"},
		"long":              {`{"code":"conflict","message":"` + long + `"}`, berth.Conflict, long[:500]},
		"not JSON":          {"<html>", berth.Unavailable, "the agent answered 503 Service Unavailable"},
		"no message":        {`{"code":"conflict","message":""}`, berth.Conflict, "the agent answered 503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := answering(t, 503, c.body).Observe(t.Context())
			if berth.CodeOf(err) != c.code || err.Error() != c.msg {
				t.Errorf("%s %.60q, want %s %.60q", berth.CodeOf(err), err, c.code, c.msg)
			}
		})
	}
	all, err := answering(t, 200, `[{"Task":"j.1","State":"placed","Why":"a\nb","Node":"n\u001b"}]`).Observe(t.Context())
	if err != nil || len(all) != 1 || all[0].Why != "a b" || all[0].Node != "n" {
		t.Errorf("%+v, %v", all, err)
	}
}

type listener struct{ c chan net.Conn }

func (l *listener) Accept() (net.Conn, error) {
	c, ok := <-l.c
	if !ok {
		return nil, errors.New("closed")
	}
	return c, nil
}

func (l *listener) Close() error   { close(l.c); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }
