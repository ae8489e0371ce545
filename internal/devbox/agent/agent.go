//go:build !windows

// Package agent is what runs on a compute instance: it makes the instance's environment, runs its
// setup scripts, keeps Jupyter and the user's applications alive, serves ssh, and says whether
// anybody uses it.
//
// It listens on one socket, which only its own user can reach; the server brings the people.
// Everything it starts is inside the node's limits, because it is.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/socket"
)

// agent is the process.
type agent struct {
	dir string
	c   devbox.Config
	log *slog.Logger
	// scratch is a directory that goes with the agent.
	scratch string

	processes *processGroup // of processes
	ssh       *sshServer
	jupyter   *jupyter
	apps      []*app
	load      load

	mu     sync.Mutex
	status devbox.Status
	change chan struct{} // closed at the next change
	stop   context.CancelFunc
}

// Main is the program of an agent. args are what follows the hidden command on the command line.
func Main(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("_devbox", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory of the instance")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("--dir is missing")
	}
	b, err := os.ReadFile(filepath.Join(*dir, "agent.json"))
	if err != nil {
		return err
	}
	var c devbox.Config
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("agent.json: %w", err)
	}
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	return Run(ctx, *dir, c)
}

// Run is the agent of an instance until ctx ends or it is asked to stop. Nothing it started is left
// then.
func Run(ctx context.Context, dir string, c devbox.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &agent{
		dir: dir, c: c, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), change: make(chan struct{}), stop: cancel,
		status: devbox.Status{Run: c.Run, Seq: 1, Phase: devbox.PhaseEnvironment, Detail: "the instance's agent has started"},
	}
	var err error
	// What services need while they run is not on the instance's disk, which may be full.
	a.scratch = devbox.Scratch(dir)
	if err := os.RemoveAll(a.scratch); err != nil { // of an agent that was killed
		return err
	}
	if err := os.MkdirAll(a.scratch, 0o700); err != nil {
		return err
	}
	if err := socket.Private(filepath.Dir(a.scratch)); err != nil {
		return err
	}
	defer os.RemoveAll(a.scratch)
	if err := a.linkProgram(); err != nil {
		return err
	}
	a.processes = newProcessGroup(a.environ())
	defer a.processes.end(5 * time.Second)
	if a.ssh, err = newSSH(a); err != nil {
		return err
	}
	l, err := socket.Listen(socketPath(dir))
	if err != nil {
		return err
	}
	defer l.Close()
	a.set(func(s *devbox.Status) { s.HostKey = a.ssh.publicKey() })
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	streams := newStreams()
	server := &http.Server{Handler: a.routes(), ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	group.Go(func() { _ = server.Serve(streams) })
	group.Go(func() { a.processes.reap(ctx) })
	group.Go(func() {
		if err := a.setUp(ctx); err != nil && ctx.Err() == nil {
			a.fail(err)
		}
	})
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		group.Go(func() { a.accept(ctx, conn, streams) })
	}
}

// accept finds out what a connection is for. Jobs run as the same user and can open the socket;
// only the server may.
func (a *agent) accept(ctx context.Context, c net.Conn, streams *streams) {
	if pid, err := socket.Peer(c); a.c.Home != "" && (err != nil || runner.OfTask(pid, a.c.Home)) {
		a.log.Warn("a connection of a job was refused", "pid", pid, "err", err)
		c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := readLine(c)
	_ = c.SetReadDeadline(time.Time{})
	to, ok := strings.CutPrefix(line, hello)
	if err != nil || !ok {
		c.Close()
		return
	}
	switch to {
	case control:
		if _, err := io.WriteString(c, "+\n"); err != nil {
			c.Close()
			return
		}
		streams.give(ctx, c)
	case sshName:
		if _, err := io.WriteString(c, "+\n"); err == nil {
			a.ssh.serve(ctx, c)
		}
		c.Close()
	default:
		defer c.Close()
		far, done, err := a.dialApp(ctx, to)
		if err != nil {
			_, _ = io.WriteString(c, "-"+strings.ReplaceAll(err.Error(), "\n", " ")+"\n")
			return
		}
		defer done()
		if _, err := io.WriteString(c, "+\n"); err == nil {
			join(ctx, c, far)
		}
	}
}

// join passes bytes both ways until one side is done, and closes both.
func join(ctx context.Context, a, b net.Conn) {
	defer context.AfterFunc(ctx, func() { a.Close(); b.Close() })()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.Copy(b, a)
		if w, ok := b.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
	})
	_, _ = io.Copy(a, b)
	a.Close()
	b.Close()
	group.Wait()
}

// streams is a listener of the connections that are for the control server.
type streams struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newStreams() *streams { return &streams{conns: make(chan net.Conn), over: make(chan struct{})} }

func (s *streams) give(ctx context.Context, c net.Conn) {
	select {
	case s.conns <- c:
	case <-s.over:
		c.Close()
	case <-ctx.Done():
		c.Close()
	}
}

func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.over:
		return nil, net.ErrClosed
	}
}

func (s *streams) Close() error {
	s.once.Do(func() { close(s.over) })
	return nil
}

func (s *streams) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// statusWait is how long a question for the status waits for news.
const statusWait = 25 * time.Second

func (a *agent) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		after, _ := strconv.Atoi(r.URL.Query().Get("after"))
		send(w, a.wait(r.Context(), after))
	})
	mux.HandleFunc("GET /signals", func(w http.ResponseWriter, r *http.Request) { send(w, a.signals(r.Context())) })
	mux.HandleFunc("GET /disk", func(w http.ResponseWriter, r *http.Request) { send(w, diskUse(a.dir)) })
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) {
		a.log.Info("asked to stop")
		j, apps := a.services()
		if j != nil {
			j.end()
		}
		for _, x := range apps {
			x.end()
		}
		a.processes.end(5 * time.Second)
		send(w, true)
		_ = http.NewResponseController(w).Flush() // the end closes this connection too
		a.stop()
	})
	return mux
}

func send(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b)
}

// set changes the status and tells who waits for it.
func (a *agent) set(f func(*devbox.Status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.status)
	a.status.Seq++
	close(a.change)
	a.change = make(chan struct{})
}

// say tells what the agent is doing.
func (a *agent) say(phase, detail string) {
	a.log.Info(detail, "phase", phase)
	a.set(func(s *devbox.Status) { s.Phase, s.Detail = phase, detail })
}

func (a *agent) warn(text string) {
	a.log.Warn(text)
	a.set(func(s *devbox.Status) {
		if !slices.Contains(s.Warnings, text) {
			s.Warnings = append(slices.Clone(s.Warnings), text)
		}
	})
}

// wait is the status as soon as it is another than after.
func (a *agent) wait(ctx context.Context, after int) devbox.Status {
	t := time.NewTimer(statusWait)
	defer t.Stop()
	for {
		a.mu.Lock()
		s, change := a.status, a.change
		a.mu.Unlock()
		if s.Seq != after {
			return s
		}
		select {
		case <-change:
		case <-t.C:
			return s
		case <-ctx.Done():
			return s
		}
	}
}

// failure is an error with the log that tells more.
type failure struct {
	msg, log string
}

func (f *failure) Error() string { return f.msg }

func (a *agent) fail(err error) {
	a.log.Error("setting up", "err", err)
	var f *failure
	a.set(func(s *devbox.Status) {
		s.Phase, s.Detail, s.Failed = devbox.PhaseFailed, err.Error(), err.Error()
		if errors.As(err, &f) {
			s.Log = f.log
		}
	})
}

// setUp takes a new node to a working instance.
func (a *agent) setUp(ctx context.Context) error {
	if left := diskFree(a.dir); left >= 0 && left < lowDisk {
		a.warn(fmt.Sprintf("the disk is full (%d MB left) and writes fail; remove files in a terminal, in JupyterLab or with `berth ssh %s`", left>>20, a.c.Name))
	}
	if err := a.environment(ctx); err != nil {
		return err
	}
	if err := a.nameWorkspace(); err != nil { // a full disk is no reason not to start
		a.warn("the file .azureml/config.json, by which clients find the workspace, was not written: " + err.Error())
	}
	if err := a.writeProfile(); err != nil {
		a.warn("the file .profile, by which terminals find the instance's programs, was not written: " + err.Error())
	}
	if a.c.Creation != nil {
		if err := a.script(ctx, devbox.PhaseCreation, a.c.Creation); err != nil {
			return err
		}
	}
	a.set(func(s *devbox.Status) { s.SetUp = true })
	if a.c.Startup != nil {
		if err := a.script(ctx, devbox.PhaseStartup, a.c.Startup); err != nil {
			return err
		}
	}
	a.say(devbox.PhaseServices, "starting JupyterLab")
	j := newJupyter(a)
	if err := j.start(ctx); err != nil {
		return err
	}
	var apps []*app
	for _, spec := range a.c.Apps {
		apps = append(apps, a.startApp(ctx, spec))
	}
	a.mu.Lock()
	a.jupyter, a.apps = j, apps
	a.mu.Unlock()
	a.load.start(a.processes)
	a.show()
	a.say(devbox.PhaseReady, "the instance is ready")
	return nil
}

// services are what runs, nil before it does.
func (a *agent) services() (*jupyter, []*app) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.jupyter, a.apps
}

// show puts the applications, as they are now, into the status.
func (a *agent) show() {
	j, mine := a.services()
	if j == nil {
		return
	}
	why := j.problem()
	apps := []berth.InstanceApp{
		{Name: "jupyter", Title: "Jupyter", Path: "/tree", Error: why},
		{Name: "jupyter", Title: "JupyterLab", Path: "/lab", Error: why},
		{Name: "jupyter", Title: "Terminal", Path: "/terminals/1", Error: why},
	}
	for _, x := range mine {
		apps = append(apps, berth.InstanceApp{Name: x.spec.Name, Title: x.spec.Name, Path: "/", Error: x.problem()})
	}
	a.set(func(s *devbox.Status) { s.Apps = apps })
}

// dialApp connects to an application; done is called when the connection is over.
func (a *agent) dialApp(ctx context.Context, name string) (net.Conn, func(), error) {
	j, apps := a.services()
	if name == "jupyter" && j != nil {
		c, err := j.dial(ctx)
		return c, func() {}, err
	}
	for _, x := range apps {
		if strings.EqualFold(x.spec.Name, name) {
			return x.dial(ctx)
		}
	}
	return nil, nil, fmt.Errorf("there is no application %s", name)
}
