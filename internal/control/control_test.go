package control_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/control"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
)

// fixture is the loops over a real store and the real front door, with a target made of timers. It
// lives in a synctest bubble: time passes when everybody waits.
type fixture struct {
	t         *testing.T
	api       http.Handler
	db        *store.DB
	authority *auth.Authority
	driver    *fake.Driver
	cluster   *fake.Driver
	far       *fake.Driver // of a machine that is attached; nil when there is none
	options   control.Options
	control   *control.Control // that runs now
	ws        string
	user      string               // who asks
	role      auth.Role            // of who asks; empty is an administrator
	kinds     map[string]kind.Kind // beside the server's
	stop      func()
	reports   sync.WaitGroup // on their way
	set       atomic.Int64   // by how much the wall clock of the machine was set
	failing   bool           // see rehearsed_test.go; of the loops that run begins
	refused   sync.Map       // tasks that the loops that run begins cannot take up, by id
}

var (
	space   = berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	machine = sched.Machine{CPUs: 8, Memory: 32 << 30, GPUs: 2}
)

func build(t *testing.T, slots int) *fixture {
	t.Helper()
	return buildOn(t, berth.LocalTerms{Slots: slots})
}

// buildOn is build on a machine with terms of its own.
func buildOn(t *testing.T, terms berth.LocalTerms) *fixture {
	t.Helper()
	slots := terms.Slots
	dir := t.TempDir()
	p := &fixture{t: t, ws: space.ID(), user: "ann"}
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "db"), store.Options{NoSync: true, Rehearse: rehearsed, Wall: p.wall})
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
	authority := auth.NewAuthority(keys, db)
	p.authority = authority
	signer := front.NewSigner(keys.SAS)
	at := locate.Locator{BaseURL: "https://127.0.0.1:1", Account: "st", Suffix: "berth/"}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	curated := func(string) (berth.LaunchEnv, bool) { return berth.LaunchEnv{}, false }
	s := api.New(api.Options{
		DB: db, Blobs: blobs, Front: front.New(blobs, signer, front.Options{Account: "st", Suffix: "berth", Signed: p.signed}), Authority: authority, Signer: signer,
		KindOf: p.kindOf, Watcher: &filewatch.Watcher{}, Log: log, Locator: at, Location: "here", Default: space, Curated: curated, Machine: machine, Local: terms, Slots: slots,
	})
	if err := s.EnsureWorkspace(t.Context(), space, "ann"); err != nil {
		t.Fatal(err)
	}
	p.db = db
	p.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := auth.Principal{User: "ann", Role: auth.Admin}
		if !strings.HasPrefix(r.URL.Path, "/runner/") { // runners report while a test becomes another user
			who.User, who.Role = p.user, cmp.Or(p.role, auth.Admin)
		}
		s.ServeHTTP(w, r.WithContext(auth.With(r.Context(), who)))
	})
	p.driver = fake.New(fake.Options{Nodes: fake.Machine(slots), Wall: p.wall, Report: func(rs []berth.Report) { p.reports.Go(func() { p.report(rs) }) }})
	p.cluster = fake.New(fake.Options{Scales: true, Boot: 2 * time.Second, Wall: p.wall, Report: func(rs []berth.Report) { p.reports.Go(func() { p.report(rs) }) }})
	p.options = control.Options{
		DB: db, Blobs: blobs, Keys: keys, Signer: signer, Locator: at, Log: log, Curated: curated,
		Targets: p.registry(p.cluster),
		Machine: machine, Local: terms, Keep: filepath.Join(dir, "keep"),
		Moved: func(from, to berth.NodeState) { moves.add("node", string(from), string(to)) },
	}
	p.run()
	t.Cleanup(func() {
		p.stop()
		p.driver.Close()
		p.cluster.Close()
		p.reports.Wait()
		p.noteJobs()
		blobs.Close()
		db.Close()
	})
	return p
}

// signed is who may use a signature, as in a server.
func (p *fixture) signed(r *http.Request, g front.Grant) error {
	return p.authority.CheckHolder(r.Context(), g.Holder, time.Now())
}

// kindOf is the kind of a jobType, those of a test's own among them.
func (p *fixture) kindOf(jobType string) (kind.Kind, error) {
	if k := p.kinds[strings.ToLower(jobType)]; k != nil {
		return k, nil
	}
	return kind.Of(jobType)
}

// wall is the wall clock of the machine that everything runs on.
func (p *fixture) wall() time.Time { return time.Now().Add(time.Duration(p.set.Load())) }

// registry has the fixture's own machine, and cluster for nodes.
func (p *fixture) registry(cluster driver.Driver) *driver.Registry {
	log := slog.New(slog.NewTextHandler(p.t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	return fake.Registry(map[string]driver.Driver{"local": p.driver, "amlcompute": cluster, "computeinstance": cluster}, log)
}

// run starts the loops; stop ends them as the end of a process would.
func (p *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	c := control.New(p.options)
	p.control = c
	if fail := failing || p.failing; rehearsed || fail {
		c.CheckState(p.t, fail)
	} else {
		c.FailTakeUp(func(id berth.TaskID) bool { _, ok := p.refused.Load(id); return ok })
	}
	go func() { done <- c.Run(ctx) }()
	p.stop = func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("control ended: %v", err)
		}
		p.stop = func() {}
	}
}

func (p *fixture) do(method, path string, body any) (int, []byte) {
	b, err := json.Marshal(body)
	if err != nil {
		p.t.Error(err)
	}
	w := httptest.NewRecorder()
	p.api.ServeHTTP(w, httptest.NewRequest(method, path, bytes.NewReader(b)))
	return w.Code, w.Body.Bytes()
}

func (p *fixture) report(rs []berth.Report) {
	for i := range rs {
		for _, d := range []*fake.Driver{p.driver, p.cluster, p.far} {
			if d == nil {
				continue
			}
			if l, ok := d.Launch(rs[i].Task); ok {
				rs[i].Token = l.Home.Token
			}
		}
	}
	if code, b := p.do("POST", "/runner/v1/reports", rs); code != http.StatusOK {
		p.t.Errorf("report: %d %s", code, b)
	}
}

func (p *fixture) submit(name, command string) {
	p.t.Helper()
	if code, b := p.do("PUT", p.ws+"/jobs/"+name, map[string]any{"properties": map[string]any{"jobType": "Command", "command": command}}); code != http.StatusCreated {
		p.t.Fatalf("%s: %d %s", name, code, b)
	}
}

func (p *fixture) job(name string) (berth.JobStatus, berth.JobState) {
	p.t.Helper()
	_, b := p.do("GET", p.ws+"/jobs/"+name, nil)
	var v struct {
		Properties struct {
			Status berth.JobStatus
			Berth  berth.JobState
		}
	}
	if err := json.Unmarshal(b, &v); err != nil {
		p.t.Fatalf("%v in %s", err, b)
	}
	return v.Properties.Status, v.Properties.Berth
}

// task is the id of a job's only task.
func (p *fixture) task(name string) berth.TaskID {
	p.t.Helper()
	_, b := p.do("GET", p.ws+"/jobs/"+name+"/tasks", nil)
	var v struct{ Value []berth.Task }
	if err := json.Unmarshal(b, &v); err != nil || len(v.Value) != 1 {
		p.t.Fatalf("%v in %s", err, b)
	}
	return v.Value[0].ID
}

// started is the jobs whose tasks were started, in order.
func (p *fixture) started() string {
	var names []string
	for _, id := range p.driver.Starts() {
		name, _, _ := strings.Cut(string(id), ".")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// until lets time pass until the job is in a status.
func (p *fixture) until(name string, want berth.JobStatus) berth.JobState {
	p.t.Helper()
	for range 2000 {
		s, st := p.job(name)
		if s == want {
			return st
		}
		if s.Terminal() {
			p.t.Fatalf("%s is %s (%s), want %s", name, s, st.Reason, want)
		}
		time.Sleep(200 * time.Millisecond)
	}
	s, st := p.job(name)
	p.t.Fatalf("%s stays %s (%s), want %s", name, s, st.Reason, want)
	return berth.JobState{}
}

func TestSlotsAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		for i := range 6 {
			p.submit(fmt.Sprintf("j%d", i), "forever")
			p.until(fmt.Sprintf("j%d", i), map[bool]berth.JobStatus{true: berth.Running, false: berth.Queued}[i < 2])
		}
		if _, st := p.job("j4"); st.Reason != "waiting for local: all 2 slots are in use" {
			t.Errorf("reason %q", st.Reason)
		}
		for i := range 6 {
			if n := p.driver.Running(); n > 2 {
				t.Errorf("%d tasks run on 2 slots", n)
			}
			p.driver.Finish(p.task(fmt.Sprintf("j%d", i)), berth.Exit{Code: i % 2})
			p.until(fmt.Sprintf("j%d", i), map[bool]berth.JobStatus{true: berth.Completed, false: berth.Failed}[i%2 == 0])
			if i+2 < 6 {
				p.until(fmt.Sprintf("j%d", i+2), berth.Running)
			}
		}
		if got := p.started(); got != "j0 j1 j2 j3 j4 j5" {
			t.Errorf("started %s", got)
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.submit("runs", "forever")
		p.submit("deaf", "trap; forever")
		p.submit("waits", "forever")
		p.until("runs", berth.Running)
		p.until("waits", berth.Queued)
		p.do("POST", p.ws+"/jobs/waits/cancel", nil)
		if st := p.until("waits", berth.Canceled); st.Exit.Cause != "canceled" {
			t.Errorf("%+v", st.Exit)
		}
		p.do("POST", p.ws+"/jobs/runs/cancel", nil)
		p.until("runs", berth.Canceled)
		p.until("deaf", berth.Running)
		p.do("POST", p.ws+"/jobs/deaf/cancel", nil)
		p.until("deaf", berth.Canceled)
		if got := p.started(); got != "runs deaf" {
			t.Errorf("started %s", got)
		}
		if code, _ := p.do("POST", p.ws+"/jobs/runs/cancel", nil); code != http.StatusOK {
			t.Errorf("cancel of a canceled job: %d", code)
		}
	})
}

func TestTargetFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 2)
		p.driver.Break("start", berth.Errorf(berth.Unavailable, "it is away"))
		p.submit("late", "true")
		time.Sleep(time.Second)
		if s, _ := p.job("late"); s != berth.Preparing {
			t.Errorf("while the target is away the job is %s", s)
		}
		p.driver.Break("start", nil)
		p.until("late", berth.Completed)

		p.driver.Break("start", berth.Errorf(berth.Invalid, "no such thing here"))
		p.submit("never", "true")
		if st := p.until("never", berth.Failed); !strings.Contains(st.Reason, "no such thing here") {
			t.Errorf("reason %q", st.Reason)
		}
		p.driver.Break("start", nil)

		p.submit("vanishes", "forever")
		p.until("vanishes", berth.Running)
		p.driver.Lose(p.task("vanishes"))
		if st := p.until("vanishes", berth.Failed); st.Exit.Cause != "lost" || !strings.Contains(st.Reason, "disappeared") {
			t.Errorf("%+v", st)
		}
		if _, b := p.do("GET", p.ws+"/jobs/vanishes/explain", nil); !strings.Contains(string(b), "how its command ended is not known") {
			t.Errorf("%s", b)
		}
		p.submit("next", "true")
		p.until("next", berth.Completed) // the slot came back
	})
}

// TestLaunch looks at what a runner is given: everything resolved, nothing of the server's own
// secrets.
func TestLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		put := func(path string, props map[string]any) {
			t.Helper()
			if code, b := p.do("PUT", p.ws+path, map[string]any{"properties": props}); code >= 300 {
				t.Fatalf("%s: %d %s", path, code, b)
			}
		}
		put("/data/d/versions/1", map[string]any{"dataType": "uri_folder", "dataUri": "azureml://datastores/workspaceblobstore/paths/in/d"})
		put("/data/signed/versions/1", map[string]any{"dataType": "uri_folder", "dataUri": "https://a.blob.core.windows.net/c/d?sig=secret"})
		put("/environments/e/versions/1", map[string]any{"image": "img", "condaFile": "dependencies: [python]"})
		put("/jobs/j", map[string]any{
			"jobType": "Command", "command": "forever ${{inputs.d}}", "environmentId": "azureml:e:1", "limits": map[string]any{"timeout": "PT1M"},
			"inputs": map[string]any{
				"d": map[string]any{"jobInputType": "uri_folder", "uri": "azureml:d:1"}, "n": map[string]any{"jobInputType": "literal", "value": "7"},
				"w": map[string]any{"jobInputType": "uri_file", "uri": "https://example.org/x"},
				"s": map[string]any{"jobInputType": "uri_file", "uri": "https://user:pass@example.org/x?sig=a%2Fb&v=1"},
				"t": map[string]any{"jobInputType": "uri_file", "uri": "https://example.org/x?sig=a%2Fb", "mode": "Direct"},
				"u": map[string]any{"jobInputType": "uri_folder", "uri": "azureml:signed:1"},
			},
			"outputs":              map[string]any{"o": map[string]any{"jobOutputType": "uri_folder"}, "q": map[string]any{"jobOutputType": "uri_folder", "uri": "https://a.blob.core.windows.net/c/${{name}}?sig=x"}, "p": map[string]any{"jobOutputType": "uri_folder", "uri": "azureml://datastores/workspaceblobstore/paths/out/${{name}}"}},
			"environmentVariables": map[string]any{"A": 1, "B": true, "C": 1.5},
		})
		p.until("j", berth.Running)
		l, ok := p.driver.Launch(p.task("j"))
		if !ok {
			t.Fatal("not launched")
		}
		for what, ok := range map[string]bool{
			"data asset":  strings.Contains(l.Inputs["d"].URL, "/in/d?") && strings.Contains(l.Inputs["d"].URL, "sig="),
			"literal":     l.Inputs["n"].Value == "7",
			"web":         l.Inputs["w"].URL == "https://example.org/x",
			"signed":      l.Inputs["s"].URL == "https://user:pass@example.org/x?sig=a%2Fb&v=1",
			"direct":      l.Inputs["t"].URI == "https://example.org/x?sig=a%2Fb",
			"of an asset": l.Inputs["u"].URL == "https://a.blob.core.windows.net/c/d?sig=secret",
			"signed out":  l.Outputs["q"].URL == "https://a.blob.core.windows.net/c/j?sig=x",
			"output":      strings.Contains(l.Outputs["o"].URL, "/azureml/j/o?"),
			"output path": strings.Contains(l.Outputs["p"].URL, "/out/j?"),
			"artifacts":   strings.Contains(l.Artifacts, "/ExperimentRun/dcid.j?"),
			"environment": l.Environment.Image == "img" && l.Environment.Conda == "dependencies: [python]" && !l.Environment.Host,
			"timeout":     l.Timeout == time.Minute,
			"variables":   l.Env["A"] == "1" && l.Env["B"] == "True" && l.Env["C"] == "1.5",
			"log":         strings.HasSuffix(l.LogFile, "-"+string(p.task("j"))+".txt"),
			"token":       strings.HasPrefix(l.Home.Token, "bt_"),
		} {
			if !ok {
				t.Errorf("%s: %+v", what, l)
			}
		}
	})
}

// TestSameName: a job of a name that another workspace has, or an earlier job had, is a job of its
// own.
func TestSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		p.submit("twin", "exit 3")
		p.until("twin", berth.Failed)
		if code, b := p.do("DELETE", p.ws+"/jobs/twin", nil); code != http.StatusAccepted {
			t.Fatalf("%d %s", code, b)
		}
		p.submit("twin", "exit 0")
		p.until("twin", berth.Completed)
		other := strings.Replace(p.ws, "/workspaces/w", "/workspaces/w2", 1)
		if code, b := p.do("PUT", other, map[string]any{}); code != http.StatusOK {
			t.Fatalf("%d %s", code, b)
		}
		p.ws = other
		p.submit("twin", "exit 4")
		if st := p.until("twin", berth.Failed); st.Exit.Code != 4 {
			t.Errorf("%+v", st.Exit)
		}
		if got := p.started(); got != "twin twin twin" {
			t.Errorf("started %s", got)
		}
	})
}

// TestBadLaunch: a job whose data went away while it waited fails with that reason, and the slot
// goes to the next.
func TestBadLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		if code, b := p.do("PUT", p.ws+"/data/d/versions/1", map[string]any{"properties": map[string]any{"dataType": "uri_file", "dataUri": "azureml://datastores/workspaceblobstore/paths/x"}}); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		p.submit("first", "forever")
		p.until("first", berth.Running)
		in := map[string]any{"d": map[string]any{"jobInputType": "uri_file", "uri": "azureml:d:1"}}
		if code, b := p.do("PUT", p.ws+"/jobs/bad", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "x ${{inputs.d}}", "inputs": in}}); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		p.submit("good", "true")
		p.until("good", berth.Queued)
		p.do("DELETE", p.ws+"/data/d/versions/1", nil)
		p.driver.Finish(p.task("first"), berth.Exit{})
		p.until("good", berth.Completed)
		if st := p.until("bad", berth.Failed); !strings.Contains(st.Reason, "d:1") {
			t.Errorf("reason %q", st.Reason)
		}
	})
}
