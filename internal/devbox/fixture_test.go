package devbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/control"
	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// fixture is the loops of instances and of jobs over a real store and the real front door, with
// nodes and agents made of timers. It lives in a synctest bubble.
type fixture struct {
	t       *testing.T
	api     *api.Server
	db      *store.DB
	driver  *fake.Driver
	options devbox.Options
	jobs    *control.Control
	ws      string
	dir     string
	stop    func()
	reports sync.WaitGroup // on their way

	mu    sync.Mutex
	boxes map[string]*box // by directory
}

var space = berth.Workspace{Subscription: "s", Group: "g", Name: "w"}

func build(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "db"), store.Options{NoSync: true, Rehearse: rehearsed})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := auth.LoadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	signer := front.NewSigner(keys.SAS)
	at := locate.Locator{BaseURL: "https://127.0.0.1:1", Account: "st", Suffix: "berth/"}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	curated := func(string) (berth.LaunchEnv, bool) { return berth.LaunchEnv{}, false }
	machine := sched.Machine{CPUs: 64, Memory: 1 << 40, GPUs: 1}
	p := &fixture{t: t, db: db, ws: space.ID(), dir: filepath.Join(dir, "instances"), boxes: map[string]*box{}}
	tracking := track.New(track.Options{DB: db, Blobs: blobs, Dir: filepath.Join(dir, "tracking"), Log: log})
	t.Cleanup(func() { tracking.Close() })
	p.api = api.New(api.Options{
		Tracking: tracking,
		DB:       db, Blobs: blobs, Front: front.New(blobs, signer, front.Options{Account: "st", Suffix: "berth"}), Authority: auth.NewAuthority(keys, db), Signer: signer,
		Watcher: &filewatch.Watcher{}, Log: log, Locator: at, Location: "here", Default: space, Curated: curated, Machine: machine,
		Instances: api.Instances{Dir: p.dir},
	})
	if err := p.api.EnsureWorkspace(t.Context(), space, "ann"); err != nil {
		t.Fatal(err)
	}
	p.driver = fake.New(fake.Options{
		Scales: true, Boot: 3 * time.Second, Outcome: p.outcome, Report: func(rs []berth.Report) { p.reports.Go(func() { p.report(rs) }) },
	})
	target := driver.NewTarget("clusters", p.driver, log)
	p.options = devbox.Options{
		DB: db, Machine: target, Dir: p.dir, Command: []string{"berth", "_devbox"}, Log: log, DiskBytes: 1000,
		Agent: func(dir string) devbox.Agent { return p.box(dir) },
		Admit: devbox.Admission{Machine: machine}.Admit,
		Script: func(_ context.Context, _, path string) ([]byte, error) {
			return nil, berth.Errorf(berth.NotFound, "there is no %s", path)
		},
	}
	p.jobs = control.New(control.Options{
		DB: db, Blobs: blobs, Keys: keys, Signer: signer, Locator: at, Log: log, Curated: curated, Machine: machine, Keep: filepath.Join(dir, "keep"),
		Targets: fake.Registry(map[string]driver.Driver{"local": fake.New(fake.Options{}), "amlcompute": p.driver, "computeinstance": p.driver}, log),
	})
	ctx, cancel := context.WithCancel(context.Background())
	controlled := make(chan error, 1)
	go func() { controlled <- p.jobs.Run(ctx) }()
	p.run()
	t.Cleanup(func() {
		p.stop()
		cancel()
		<-controlled
		p.driver.Close()
		p.reports.Wait()
		p.noteInstances()
		blobs.Close()
		db.Close()
	})
	return p
}

// run starts the loop of instances; stop ends it as the end of a process would.
func (p *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	l := devbox.New(p.options)
	go func() { done <- l.Run(ctx) }()
	p.stop = func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("the loop ended: %v", err)
		}
		p.stop = func() {}
	}
}

func (p *fixture) report(rs []berth.Report) {
	for i := range rs {
		if l, ok := p.driver.Launch(rs[i].Task); ok {
			rs[i].Token = l.Home.Token
		}
	}
	p.as("ann", auth.Admin, "POST", "/runner/v1/reports", rs)
}

// outcome starts the agent of a launch that is one; other tasks are scripts of the fake driver's.
func (p *fixture) outcome(l berth.Launch) fake.Outcome {
	_, dir, ok := strings.Cut(l.Command, "'--dir' '")
	if !ok {
		return fake.Script(l)
	}
	p.box(strings.TrimSuffix(dir, "'")).begin(l)
	return fake.Outcome{Run: -1}
}

// box is an agent made of timers.
type box struct {
	p   *fixture
	dir string

	mu      sync.Mutex
	task    berth.TaskID // while it is there
	config  devbox.Config
	status  devbox.Status
	change  chan struct{}
	stopped int // how often it was asked to end
	starts  []devbox.Config
	// What a test decides.
	takes   time.Duration // setting up
	fails   string        // setting up ends like this
	signals []devbox.Signal
	deaf    bool
	disk    int64
}

func (p *fixture) box(dir string) *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.boxes[dir]
	if b == nil {
		b = &box{p: p, dir: dir, change: make(chan struct{}), takes: 10 * time.Second, disk: 100}
		p.boxes[dir] = b
	}
	return b
}

func (p *fixture) of(name string) *box { return p.box(devbox.Dir(p.dir, space.Key(), name)) }

// begin is the start of the agent's process.
func (b *box) begin(l berth.Launch) {
	text, err := os.ReadFile(filepath.Join(b.dir, "agent.json"))
	if err != nil {
		b.p.t.Errorf("the agent starts without its configuration: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.config = devbox.Config{}
	if err := json.Unmarshal(text, &b.config); err != nil {
		b.p.t.Error(err)
	}
	b.starts = append(b.starts, b.config)
	b.task = l.Task
	b.set(devbox.Status{Run: b.config.Run, Phase: devbox.PhaseEnvironment, Detail: "installing", HostKey: "key"})
	run := b.config.Run
	time.AfterFunc(b.takes, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case b.task != l.Task || b.status.Run != run:
		case b.fails != "":
			b.set(devbox.Status{Run: run, Phase: devbox.PhaseFailed, Failed: b.fails, Log: "its last line", HostKey: "key"})
		default:
			b.set(devbox.Status{Run: run, Phase: devbox.PhaseReady, SetUp: true, HostKey: "key", Apps: []berth.InstanceApp{{Name: "jupyter", Title: "JupyterLab", Path: "/lab"}}})
		}
	})
}

// set is called with the mutex held.
func (b *box) set(s devbox.Status) {
	s.Seq = b.status.Seq + 1
	b.status = s
	close(b.change)
	b.change = make(chan struct{})
}

var errNobody = errors.New("nobody listens")

// there says whether the agent's process lives.
func (b *box) there() bool {
	b.mu.Lock()
	task, node, deaf := b.task, b.config.Node, b.deaf
	b.mu.Unlock()
	_, known := b.p.driver.Launch(task)
	return task != "" && known && !deaf && b.p.driver.RunningOn(node) > 0
}

func (b *box) Status(ctx context.Context, after int) (devbox.Status, error) {
	t := time.NewTimer(25 * time.Second)
	defer t.Stop()
	for {
		if !b.there() {
			return devbox.Status{}, errNobody
		}
		b.mu.Lock()
		s, change := b.status, b.change
		b.mu.Unlock()
		if s.Seq != after {
			return s, nil
		}
		poll := time.NewTimer(time.Second) // a process that dies closes its socket
		select {
		case <-change:
		case <-poll.C:
		case <-t.C:
			return s, nil
		case <-ctx.Done():
			return s, ctx.Err()
		}
		poll.Stop()
	}
}

func (b *box) Signals(context.Context) ([]devbox.Signal, error) {
	if !b.there() {
		return nil, errNobody
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.signals, nil
}

func (b *box) Disk(context.Context) (int64, error) {
	if !b.there() {
		return 0, errNobody
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.disk, nil
}

func (b *box) Stop(context.Context) error {
	if !b.there() {
		return errNobody
	}
	b.mu.Lock()
	b.stopped++
	id := b.task
	b.task = ""
	b.mu.Unlock()
	b.p.driver.Finish(id, berth.Exit{})
	return nil
}

// seen changes what the agent sees.
func (b *box) seen(s ...devbox.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.signals = s
}

// be changes what a test decides about the agent.
func (b *box) be(f func(*box)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

// runs are the configurations it was started with, so far.
func (b *box) runs() []devbox.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.starts)
}

// kill is the sudden end of the agent's process.
func (b *box) kill() {
	b.mu.Lock()
	id := b.task
	b.task = ""
	b.mu.Unlock()
	b.p.driver.Finish(id, berth.Exit{Code: 137, Signal: "SIGKILL"})
}

func (p *fixture) as(user string, role auth.Role, method, path string, body any) (int, []byte) {
	b, err := json.Marshal(body)
	if err != nil {
		p.t.Error(err)
	}
	r := httptest.NewRequest(method, path, bytes.NewReader(b))
	w := httptest.NewRecorder()
	p.api.ServeHTTP(w, r.WithContext(auth.With(r.Context(), auth.Principal{User: user, Role: role})))
	return w.Code, w.Body.Bytes()
}

func (p *fixture) do(method, path string, body any) (int, []byte) {
	return p.as("ann", auth.User, method, path, body)
}

// create asks for an instance with these inner properties.
func (p *fixture) create(name string, inner map[string]any) (int, []byte) {
	props := map[string]any{"vmSize": "Standard_DS3_v2"}
	for k, v := range inner {
		props[k] = v
	}
	return p.do("PUT", p.ws+"/computes/"+name, map[string]any{"location": "here", "properties": map[string]any{"computeType": "ComputeInstance", "properties": props}})
}

func (p *fixture) made(name string, inner map[string]any) {
	p.t.Helper()
	if code, b := p.create(name, inner); code != http.StatusCreated {
		p.t.Fatalf("create %s: %d %s", name, code, b)
	}
}

// action is a POST on an instance.
func (p *fixture) action(name, verb string, body any) {
	p.t.Helper()
	if code, b := p.do("POST", p.ws+"/computes/"+name+"/"+verb, body); code != http.StatusAccepted || len(b) != 0 {
		p.t.Fatalf("%s %s: %d %s", verb, name, code, b)
	}
}

// shown is an instance as clients see it.
type shown struct {
	Properties struct {
		ProvisioningState string
		Properties        struct {
			VMSize        string
			State         string
			LastOperation berth.Operation
			Applications  []struct{ DisplayName, EndpointURI string }
			Errors        []struct{ Error struct{ Message string } }
		}
		Berth struct {
			Reason, Awake, Node string
			AwakeAt, StopsAt    time.Time
			Warnings            []string
		}
	}
}

func (p *fixture) show(name string) (v shown, found bool) {
	p.t.Helper()
	code, b := p.do("GET", p.ws+"/computes/"+name, nil)
	if code == http.StatusNotFound {
		return v, false
	}
	if err := json.Unmarshal(b, &v); err != nil {
		p.t.Fatalf("%v in %s", err, b)
	}
	return v, true
}

func (p *fixture) state(name string) string {
	v, found := p.show(name)
	if !found {
		return "gone"
	}
	return v.Properties.Properties.State
}

// op is the status of a long-running operation.
func (p *fixture) op(verb, name string) string {
	_, b := p.do("GET", "/opstatus/"+verb+p.ws+"/computes/"+name, nil)
	var v struct {
		Status string
		Error  struct{ Message string }
	}
	if err := json.Unmarshal(b, &v); err != nil {
		p.t.Fatalf("%v in %s", err, b)
	}
	return strings.TrimSpace(v.Status + " " + v.Error.Message)
}

// until lets time pass until f holds.
func (p *fixture) until(what string, f func() bool) {
	p.t.Helper()
	for range 2000 {
		if f() {
			return
		}
		time.Sleep(time.Second)
	}
	p.t.Fatalf("never: %s", what)
}

func (p *fixture) reaches(name, state string) {
	p.t.Helper()
	for range 2000 {
		if p.state(name) == state {
			return
		}
		time.Sleep(time.Second)
	}
	v, _ := p.show(name)
	p.t.Fatalf("%s never became %s: %+v", name, state, v)
}

// states are those the instance went through, as its events tell.
func (p *fixture) states(name string) (out []string) {
	for _, e := range p.events(name) {
		if e.Type != berth.EventCompute {
			continue
		}
		if e.Reason == "" {
			p.t.Errorf("an event without a reason: %+v", e)
		}
		var v struct{ State string }
		if err := json.Unmarshal(e.Data, &v); err != nil {
			p.t.Fatal(err)
		}
		if len(out) == 0 || out[len(out)-1] != v.State {
			out = append(out, v.State)
		}
	}
	return out
}

func (p *fixture) events(name string) (out []berth.Event) {
	p.t.Helper()
	err := p.db.View(p.t.Context(), func(tx *store.Tx) (err error) {
		out, err = tx.Events(store.EventQuery{Workspace: space.Key(), Subject: "computes/" + name})
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// nodes are those of the machine, and records those of the store.
func (p *fixture) nodes() (machine, records []string) {
	p.t.Helper()
	info, err := p.driver.Probe(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, n := range info.Nodes {
		machine = append(machine, n.Name)
	}
	err = p.db.View(p.t.Context(), func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Workspace: space.Key(), Kind: "nodes"})
		for _, d := range docs {
			records = append(records, d.Name)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return machine, records
}
