//go:build engines

package slurm_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/slurm"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
	"github.com/berthml/berth/internal/runner/alone"
	"github.com/berthml/berth/internal/runner/data/blobtest"
	"github.com/berthml/berth/internal/runner/group"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "_task" {
		os.Exit(alone.Main(context.Background(), os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "_group" {
		os.Exit(group.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// fixture is a cluster and the server that submits to it.
type fixture struct {
	*slurmtest.Cluster
	dir string
	api *httptest.Server
	d   driver.Driver

	mu      sync.Mutex
	logs    map[string][]byte
	fetched int // how often the program was
	blobs   *blobtest.Server
	turners []driver.Turner
	away    atomic.Bool // the server does not say whose turn it is

	document string
	access   *driver.Access // to connect with; nil where nothing has to be connected
}

// answers has runners ask a driver for their next task, before those that were there.
func (f *fixture) answers(d driver.Driver) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turners = append(f.turners, d.(driver.Turner))
}

const document = `{"properties":{"computeType":"VirtualMachine","properties":{"connection":"slurm"}}}`

func open(t *testing.T) *fixture {
	t.Helper()
	return openOn(t, slurmtest.Start(t, 2, 16))
}

// openOn is open on a cluster that is there.
func openOn(t *testing.T, c *slurmtest.Cluster) *fixture {
	t.Helper()
	f := newFixture(t, c)
	f.reopen(t)
	return f
}

func newFixture(t *testing.T, c *slurmtest.Cluster) *fixture {
	t.Helper()
	f := &fixture{Cluster: c, dir: t.TempDir(), logs: map[string][]byte{}, blobs: blobtest.New(t), document: document}
	f.api = httptest.NewUnstartedServer(f)
	f.api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f.api.StartTLS()
	t.Cleanup(f.api.Close)
	return f
}

func (f *fixture) reopen(t *testing.T) driver.Driver {
	t.Helper()
	d, err := slurm.Open(driver.Config{Name: "site", Dir: f.dir, Properties: []byte(f.document), Home: filepath.Join(f.dir, "none"), Program: programHash, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(io.Closer).Close() })
	if f.access != nil {
		if _, err := d.(driver.Connector).Connect(t.Context(), *f.access); err != nil {
			t.Fatal(err)
		}
	}
	f.d = d
	f.answers(d)
	return d
}

// programHash is the hash of this program.
var programHash = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile(os.Args[0])
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
})

// ServeHTTP is the server as runners see it.
func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/st.blob.berth/") {
		f.blobs.ServeHTTP(w, r)
		return
	}
	b, _ := io.ReadAll(r.Body)
	if strings.HasSuffix(r.URL.Path, "/turn") {
		f.turn(w, r, b)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, ok := strings.CutPrefix(r.URL.Path, "/runner/v1/tasks/"); ok {
		id = strings.TrimSuffix(id, "/log")
		if r.URL.Query().Get("offset") == strconv.Itoa(len(f.logs[id])) {
			f.logs[id] = append(f.logs[id], b...)
		}
		fmt.Fprintf(w, `{"size":%d}`, len(f.logs[id]))
		return
	}
	if strings.HasPrefix(r.URL.Path, slurm.ProgramPath) {
		f.fetched++
		http.ServeFile(w, r, os.Args[0])
		return
	}
	fmt.Fprint(w, "{}")
}

// turn answers a runner as the server does.
func (f *fixture) turn(w http.ResponseWriter, r *http.Request, b []byte) {
	id := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/runner/v1/tasks/"), "/turn")
	var ask berth.Turn
	err := json.Unmarshal(b, &ask)
	if f.away.Load() {
		err = berth.Errorf(berth.Unavailable, "the server is away")
	}
	var answer berth.TurnAnswer
	f.mu.Lock()
	turners := slices.Clone(f.turners)
	f.mu.Unlock()
	for i := len(turners) - 1; i >= 0 && err == nil; i-- { // one that does not know the array has no turn
		if answer, err = turners[i].Turn(r.Context(), berth.TaskID(id), ask); answer.Task != berth.NoTurn {
			break
		}
	}
	if err != nil {
		http.Error(w, err.Error(), berth.CodeOf(err).HTTPStatus())
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *fixture) log(l berth.Launch) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.logs[string(l.Task)])
}

func (f *fixture) launch(n int, command string) berth.Launch {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.api.Certificate().Raw})
	return berth.Launch{
		Task: berth.TaskID(fmt.Sprintf("job-%d.1", n)), Job: fmt.Sprintf("job-%d", n), Attempt: 1, Command: command,
		Home: berth.Home{URL: f.api.URL, Token: "x", CA: string(ca)}, Grace: 10 * time.Second,
	}
}

func TestConformance(t *testing.T) {
	c := slurmtest.Start(t, 2, 16) // one for all: each test has a server of its own
	drivertest.RunTogether(t, func(t *testing.T) drivertest.Fixture {
		if !strings.Contains(t.Name(), "/Together/") {
			c.Cancel() // jobs whose server is gone would hold the nodes: they wait for it to come back
		}
		f := openOn(t, c).contract()
		f.Full = func(t *testing.T) (drivertest.Fixture, func()) {
			dir, err := os.MkdirTemp("", "bf")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			tmp := filepath.Join(dir, "tmp")
			if err := os.Mkdir(tmp, 0o700); err != nil {
				t.Fatal(err)
			}
			fill, free := drivertest.SmallDisk(t, tmp, "4m")
			prolog := filepath.Join(dir, "prolog")
			if err := os.WriteFile(prolog, []byte("#!/bin/sh\necho export TMPDIR="+tmp+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			f := openOn(t, slurmtest.Start(t, 1, 4, "TaskProlog="+prolog))
			fill()
			return f.contract(), free
		}
		return f
	})
}

// contract is what the tests of the contract know about the cluster.
func (f *fixture) contract() drivertest.Fixture {
	n := 0
	return drivertest.Fixture{
		Driver: f.d,
		Launch: func(command string) berth.Launch { n++; return f.launch(n, command) },
		Log:    f.log,
		Reopen: f.reopen,
		Outputs: func(l *berth.Launch) func() map[string]string {
			url := strings.Replace(f.blobs.At("model"), f.blobs.URL, f.api.URL, 1)
			l.Outputs = map[string]berth.LaunchOutput{"model": {Type: "uri_folder", URL: url}}
			return func() map[string]string { return f.blobs.All("model/") }
		},
		Away: func(t *testing.T) func() {
			f.Saved(t, "berth task job-1.1") // a controller that is killed before forgets its newest jobs
			f.Kill("slurmctld")
			return func() { f.Controller(t) }
		},
		Left: func(*testing.T) []string {
			left, _ := filepath.Glob(filepath.Join(os.TempDir(), "berth-task.*"))
			records, _ := filepath.Glob(filepath.Join(f.dir, "tasks", "*"))
			return append(left, records...)
		},
	}
}

// TestJobWithoutItsNumber: a server that is killed before it has written down the number of a job
// finds the job by its name, and does not submit it again.
func TestJobWithoutItsNumber(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := open(t)
	l := f.launch(1, "echo once; sleep 1")
	h, err := f.d.Start(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	records, _ := filepath.Glob(filepath.Join(f.dir, "tasks", "*.json"))
	if len(records) != 1 {
		t.Fatalf("records %v", records)
	}
	b, err := os.ReadFile(records[0])
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(b, &r); err != nil || r["job"] == nil {
		t.Fatalf("record %s: %v", b, err)
	}
	delete(r, "job")
	if b, err = json.Marshal(r); err == nil {
		err = os.WriteFile(records[0], b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d := f.reopen(t)
	if again, err := d.Start(ctx, l); err != nil || again != h {
		t.Errorf("started again: %q, %v; want %q", again, err, h)
	}
	if o := drivertest.Wait(ctx, t, d, l.Task); !o.Exit.OK() {
		t.Errorf("exit %+v", o.Exit)
	}
	if got := f.log(l); got != "once\n" {
		t.Errorf("log %q", got)
	}
}

// TestNodeFetchesTheProgram: nodes that share a home and begin at the same time all find a whole
// program there, later ones do not fetch it again, and one that was altered is fetched again.
func TestNodeFetchesTheProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	home := t.TempDir()
	t.Setenv("HOME", home)
	f := open(t)
	run := func(from, to int) {
		t.Helper()
		for n := from; n < to; n++ {
			if _, err := f.d.Start(ctx, f.launch(n, "true")); err != nil {
				t.Fatal(err)
			}
		}
		for n := from; n < to; n++ {
			if o := drivertest.Wait(ctx, t, f.d, f.launch(n, "true").Task); !o.Exit.OK() {
				t.Errorf("task %d: exit %+v", n, o.Exit)
			}
		}
	}
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.fetched
	}
	run(0, 4)
	first := count()
	if first == 0 {
		t.Error("nobody fetched the program")
	}
	run(4, 5)
	if n := count(); n != first {
		t.Errorf("the program was fetched again, %d times", n-first)
	}
	found, _ := filepath.Glob(filepath.Join(home, ".berth/bin/berth-*"))
	if len(found) != 1 {
		t.Fatalf("programs %v", found)
	}
	if err := os.WriteFile(found[0], []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	run(5, 6)
	if n := count(); n != first+1 {
		t.Errorf("an altered program was fetched %d times", n-first)
	}
}

// TestNodeSeesTheHome: where a node sees the server's folder no job runs, unless the operator has
// said that it may.
func TestNodeSeesTheHome(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := open(t)
	for word, ok := range map[string]bool{"true": false, "trusted": true} {
		d, err := slurm.Open(driver.Config{Name: "site", Dir: t.TempDir(), Properties: []byte(document), Home: f.dir, Consents: map[string]string{"slurm": word}, Program: programHash})
		if err != nil {
			t.Fatal(err)
		}
		l := f.launch(1, "true")
		if _, err := d.Start(ctx, l); err != nil {
			t.Fatal(err)
		}
		o := drivertest.Wait(ctx, t, d, l.Task)
		if o.Exit.OK() != ok || !ok && !strings.Contains(o.Exit.Reason, "slurm: trusted") {
			t.Errorf("slurm: %s: exit %+v", word, o.Exit)
		}
	}
}

// TestPastTerm: nothing is submitted for a server that leads no more.
func TestPastTerm(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := open(t)
	drivertest.PastTerm(ctx, t, f.d, f.launch(1, "true"), func() {})
}

// TestControllerAway: while the controller is away nothing is known, and nothing is lost.
func TestControllerAway(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := open(t)
	l := f.launch(1, "sleep 4; exit 3")
	if _, err := f.d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	f.Saved(t, "berth task job-1.1") // a controller that is killed before forgets its newest jobs
	f.Kill("slurmctld")
	short, end := context.WithTimeout(ctx, 3*time.Second)
	defer end()
	<-time.After(300 * time.Millisecond) // the last answer is not good any more
	if all, err := f.d.Observe(short); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("without a controller: %v, %v", all, err)
	}
	f.Controller(t)
	if o := drivertest.Wait(ctx, t, f.d, l.Task); o.Exit.Code != 3 {
		t.Errorf("exit %+v", o.Exit)
	}
}

// TestArray: tasks that are started together are a few jobs of Slurm; each ends, and is stopped, by
// itself.
func TestArray(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	f := open(t)
	const n = 12
	handles := make([]driver.Handle, n)
	var wg sync.WaitGroup
	for i := range n {
		command := fmt.Sprintf("echo task %d; exit %d", i, i%3)
		if i == 4 {
			command = "echo task 4; sleep 600"
		}
		wg.Go(func() {
			var err error
			if handles[i], err = f.d.Start(ctx, f.launch(i, command)); err != nil {
				t.Errorf("task %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	arrays, _ := filepath.Glob(filepath.Join(f.dir, "tasks", "*.array"))
	if len(arrays) == 0 || len(arrays) > 4 {
		t.Errorf("%d tasks are %d arrays", n, len(arrays))
	}
	d := f.reopen(t)
	for i := range n {
		if i == 4 {
			continue
		}
		l := f.launch(i, "")
		if o := drivertest.Wait(ctx, t, d, l.Task); o.Exit.Code != i%3 {
			t.Errorf("task %d: exit %+v", i, o.Exit)
		}
		if got, want := f.log(l), fmt.Sprintf("task %d\n", i); got != want {
			t.Errorf("task %d wrote %q", i, got)
		}
	}
	if err := d.Stop(ctx, handles[4], driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	if o := drivertest.Wait(ctx, t, d, f.launch(4, "").Task); o.Exit.Cause != "canceled" {
		t.Errorf("the task that was stopped: exit %+v", o.Exit)
	}
	for _, h := range handles {
		if err := d.Remove(ctx, h); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, "tasks", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
