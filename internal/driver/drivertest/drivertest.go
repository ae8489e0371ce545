// Package drivertest holds the tests every driver passes.
package drivertest

import (
	"cmp"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// Fixture is a target to test.
type Fixture struct {
	Driver driver.Driver
	// Launch makes a launch of a new task. The commands used are true, exit N, sleep SECONDS, echo
	// WORDS and trap, joined by semicolons.
	Launch func(command string) berth.Launch
	// Reopen opens the target again as a server does that was killed and started again. Nil when
	// the target does not survive its driver.
	Reopen func(t *testing.T) driver.Driver
	// Log is what a task has written so far, as it arrived at the server. Nil reads Launch.LogFile,
	// for targets that share the disk.
	Log func(l berth.Launch) string
	// Kill kills all processes of a node at once, for targets that scale. Nil when it cannot be
	// done.
	Kill func(t testing.TB, node string)

	// What follows is for targets with real nodes, whose tasks a shell runs on this machine's
	// kernel. Where a field is not set, the tests that need it are skipped.

	// Outputs gives a launch an output of type uri_folder called model, and returns what has
	// arrived there so far, by path.
	Outputs func(l *berth.Launch) (arrived func() map[string]string)
	// Away makes the target unreachable, and back reachable again. Tasks go on meanwhile.
	Away func(t *testing.T) (back func())
	// Full opens another target like this one whose node has no room on its disk until free is
	// called. It may skip the test where that takes rights that it does not have.
	Full func(t *testing.T) (f Fixture, free func())
	// Left lists what is on the target because of tasks: directories, objects, records.
	Left func(t *testing.T) []string
	// Tasks is how many tasks run at once in the test of many; 0 is 200.
	Tasks int
}

// limit is how long anything may take.
const limit = 2 * time.Minute

// Run tests the targets that make makes, one for each test.
func Run(t *testing.T, make func(t *testing.T) Fixture) {
	for _, tt := range contract() {
		t.Run(tt.name, func(t *testing.T) { tt.on(t, make) })
	}
}

// RunTogether is Run with many tests at a time, for targets that share an engine where a task takes
// long but little work. Those that disturb others run after them.
func RunTogether(t *testing.T, make func(t *testing.T) Fixture) {
	t.Run("Together", func(t *testing.T) {
		for _, tt := range contract() {
			if !disturbs[tt.name] {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					tt.on(t, make)
				})
			}
		}
	})
	for _, tt := range contract() {
		if disturbs[tt.name] {
			t.Run(tt.name, func(t *testing.T) { tt.on(t, make) })
		}
	}
}

// disturbs are the tests that change or count what all targets of an engine share.
var disturbs = map[string]bool{"Many": true, "NothingLeft": true, "Away": true, "DiskFull": true}

// test is one of the contract.
type test struct {
	name string
	run  func(*testing.T, context.Context, Fixture)
}

func (tt test) on(t *testing.T, make func(t *testing.T) Fixture) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tt.run(t, ctx, make(t))
}

func contract() []test {
	return []test{
		{"Probe", probe},
		{"Describe", describe},
		{"Gangs", gangs},
		{"Success", success},
		{"ExitCode", exitCode},
		{"Output", output},
		{"StartTwice", startTwice},
		{"StartConcurrently", startConcurrently},
		{"StartFinished", startFinished},
		{"Stop", stop},
		{"StopDeaf", stopDeaf},
		{"StopCause", stopCause},
		{"StopUnknown", stopUnknown},
		{"RemoveRunning", removeRunning},
		{"RemoveTwice", removeTwice},
		{"Many", many},
		{"EachOnce", eachOnce},
		{"Reopen", reopen},
		{"Optional", optional},
		{"Names", longNames},
		{"StopAtOnce", stopAtOnce},
		{"StopTwice", stopTwice},
		{"StopFinished", stopFinished},
		{"LogWhole", logWhole},
		{"Outputs", outputs},
		{"OutputsOfStopped", outputsOfStopped},
		{"Orphans", orphans},
		{"NothingLeft", nothingLeft},
		{"Away", away},
		{"DiskFull", diskFull},
	}
}

// Wait looks at the target until task is done, and returns what it says then.
func Wait(ctx context.Context, t testing.TB, d driver.Driver, id berth.TaskID) driver.Observed {
	t.Helper()
	return until(ctx, t, d, id, func(o driver.Observed) bool { return o.State == berth.TaskDone })
}

func until(ctx context.Context, t testing.TB, d driver.Driver, id berth.TaskID, ok func(driver.Observed) bool) driver.Observed {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := d.Observe(ctx)
		if err != nil {
			t.Fatalf("Observe: %v", err)
		}
		seen := 0
		for _, o := range all {
			if o.Task != id {
				continue
			}
			seen++
			if ok(o) {
				return o
			}
		}
		if seen != 1 {
			t.Fatalf("Observe lists %s %d times", id, seen)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v; last seen %+v", id, ctx.Err(), all)
		}
	}
}

func start(ctx context.Context, t *testing.T, d driver.Driver, l berth.Launch) driver.Handle {
	t.Helper()
	h, err := d.Start(ctx, l)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	return h
}

func probe(t *testing.T, ctx context.Context, f Fixture) {
	info, err := f.Driver.Probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Nodes) == 0 && !info.Scales {
		t.Error("a target that cannot grow has no nodes")
	}
	for _, n := range info.Nodes {
		if n.Name == "" || n.CPUs <= 0 {
			t.Errorf("node %+v has no name or no CPU", n)
		}
	}
}

// describe checks that a driver that knows what its target can do says the same as the target, and
// that it can be connected to if it can be disconnected.
func describe(t *testing.T, ctx context.Context, f Fixture) {
	info, err := f.Driver.Probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := f.Driver.(driver.Describer); ok {
		knows := d.Describe()
		if knows.MaxNodes == 0 { // only the target knows
			info.MaxNodes = 0
		}
		knows.Nodes, knows.Warnings, info.Nodes, info.Warnings = nil, nil, nil, nil
		if diff := gocmp.Diff(info, knows); diff != "" {
			t.Errorf("Describe differs from Probe (-Probe +Describe):\n%s", diff)
		}
	}
	_, connects := f.Driver.(driver.Connector)
	_, accepts := f.Driver.(driver.Acceptor)
	_, drops := f.Driver.(interface{ Drop(why error) })
	if drops && !connects && !accepts {
		t.Error("it has Drop, but neither Connect nor Accept: nothing would connect it")
	}
}

func success(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("true")
	h := start(ctx, t, f.Driver, l)
	o := Wait(ctx, t, f.Driver, l.Task)
	if !o.Exit.OK() {
		t.Errorf("exit %+v", o.Exit)
	}
	if o.Handle != h {
		t.Errorf("Observe says handle %q, Start said %q", o.Handle, h)
	}
}

func exitCode(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("exit 3")
	start(ctx, t, f.Driver, l)
	o := Wait(ctx, t, f.Driver, l.Task)
	if o.Exit == nil || o.Exit.Code != 3 || o.Exit.Cause != "" || o.Exit.Reason == "" {
		t.Errorf("exit %+v, want code 3 and a reason", o.Exit)
	}
}

func output(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("echo one two; echo three")
	if !f.logs(l) {
		t.Skip("nobody sees what tasks write")
	}
	start(ctx, t, f.Driver, l)
	Wait(ctx, t, f.Driver, l.Task)
	if diff := gocmp.Diff("one two\nthree\n", f.log(l)); diff != "" {
		t.Error(diff)
	}
}

func startTwice(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("echo x; sleep 0.05")
	a := start(ctx, t, f.Driver, l)
	b := start(ctx, t, f.Driver, l)
	if a != b {
		t.Errorf("handles %q and %q", a, b)
	}
	Wait(ctx, t, f.Driver, l.Task)
	once(t, f, l)
}

func startConcurrently(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("echo x; sleep 0.05")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := f.Driver.Start(ctx, l); err != nil {
				t.Errorf("Start: %v", err)
			}
		})
	}
	wg.Wait()
	Wait(ctx, t, f.Driver, l.Task)
	once(t, f, l)
}

func startFinished(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("echo x")
	start(ctx, t, f.Driver, l)
	Wait(ctx, t, f.Driver, l.Task)
	start(ctx, t, f.Driver, l)
	if o := Wait(ctx, t, f.Driver, l.Task); !o.Exit.OK() {
		t.Errorf("exit %+v", o.Exit)
	}
	once(t, f, l)
}

// once checks that the task's command ran one time.
func once(t *testing.T, f Fixture, l berth.Launch) {
	t.Helper()
	if !f.logs(l) {
		return
	}
	if got := f.log(l); got != "x\n" {
		t.Errorf("log %q, want one line", got)
	}
}

// logs says whether it is known what a task writes.
func (f Fixture) logs(l berth.Launch) bool { return f.Log != nil || l.LogFile != "" }

func (f Fixture) log(l berth.Launch) string {
	if f.Log != nil {
		return f.Log(l)
	}
	b, _ := os.ReadFile(l.LogFile) // one that is not there has nothing
	return string(b)
}

func stop(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("sleep 600")
	h := start(ctx, t, f.Driver, l)
	until(ctx, t, f.Driver, l.Task, func(o driver.Observed) bool { return o.State == berth.TaskRunning })
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: limit}); err != nil {
		t.Fatal(err)
	}
	o := Wait(ctx, t, f.Driver, l.Task)
	if o.Exit == nil || o.Exit.Cause != "canceled" || o.Exit.OK() {
		t.Errorf("exit %+v, want cause canceled", o.Exit)
	}
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Errorf("stopping it again: %v", err)
	}
}

func stopCause(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("sleep 600")
	h := start(ctx, t, f.Driver, l)
	until(ctx, t, f.Driver, l.Task, func(o driver.Observed) bool { return o.State == berth.TaskRunning })
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: limit, Cause: "evicted", Why: "its node is wanted"}); err != nil {
		t.Fatal(err)
	}
	o := Wait(ctx, t, f.Driver, l.Task)
	if o.Exit == nil || o.Exit.Cause != "evicted" || o.Exit.Reason != "its node is wanted" {
		t.Errorf("exit %+v, want the cause and reason it was stopped for", o.Exit)
	}
}

func stopDeaf(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("trap '' TERM; echo deaf; sleep 600; sleep 600")
	h := start(ctx, t, f.Driver, l)
	until(ctx, t, f.Driver, l.Task, func(o driver.Observed) bool {
		if f.logs(l) { // it can be known when it stopped listening
			return f.log(l) == "deaf\n"
		}
		return o.State == berth.TaskRunning
	})
	const grace = 200 * time.Millisecond
	began := time.Now()
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: grace}); err != nil {
		t.Fatal(err)
	}
	o := Wait(ctx, t, f.Driver, l.Task)
	if o.Exit == nil || o.Exit.Cause != "canceled" {
		t.Errorf("exit %+v, want cause canceled", o.Exit)
	}
	if took := time.Since(began); f.logs(l) && took < grace {
		t.Errorf("it was given %v instead of %v", took, grace)
	}
}

func stopUnknown(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("true")
	h := start(ctx, t, f.Driver, l)
	Wait(ctx, t, f.Driver, l.Task)
	if err := f.Driver.Remove(ctx, h); err != nil {
		t.Fatal(err)
	}
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Error(err)
	}
}

func removeRunning(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("sleep 600")
	h := start(ctx, t, f.Driver, l)
	if err := f.Driver.Remove(ctx, h); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("removing a running task: %v, want conflict", err)
	}
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	Wait(ctx, t, f.Driver, l.Task)
}

func removeTwice(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("true")
	h := start(ctx, t, f.Driver, l)
	Wait(ctx, t, f.Driver, l.Task)
	for range 2 {
		if err := f.Driver.Remove(ctx, h); err != nil {
			t.Fatal(err)
		}
		all, err := f.Driver.Observe(ctx)
		if err != nil || len(all) != 0 {
			t.Fatalf("Observe after Remove: %v, %v", all, err)
		}
	}
}

func many(t *testing.T, ctx context.Context, f Fixture) {
	ids := map[berth.TaskID]int{}
	var wg sync.WaitGroup
	gate := make(chan struct{}, 16) // as many as a server starts at a time
	for i := range cmp.Or(f.Tasks, 200) {
		l := f.Launch("exit " + string(rune('0'+i%3)))
		ids[l.Task] = i % 3
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			if _, err := f.Driver.Start(ctx, l); err != nil {
				t.Errorf("Start: %v", err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for id, code := range ids {
		if o := Wait(ctx, t, f.Driver, id); o.Exit.Code != code {
			t.Errorf("%s: exit %+v, want code %d", id, o.Exit, code)
		}
	}
	all, err := f.Driver.Observe(ctx)
	if err != nil || len(all) != len(ids) {
		t.Errorf("Observe lists %d tasks (%v), want %d", len(all), err, len(ids))
	}
}

func reopen(t *testing.T, ctx context.Context, f Fixture) {
	if f.Reopen == nil {
		t.Skip("the target does not survive its driver")
	}
	l := f.Launch("echo x; sleep 0.2")
	h := start(ctx, t, f.Driver, l)
	d := f.Reopen(t)
	if again := start(ctx, t, d, l); again != h {
		t.Errorf("handles %q and %q", h, again)
	}
	if o := Wait(ctx, t, d, l.Task); !o.Exit.OK() {
		t.Errorf("exit %+v", o.Exit)
	}
	once(t, f, l)
	if err := d.Remove(ctx, h); err != nil {
		t.Error(err)
	}
}

// optional checks that Info and the interfaces agree.
func optional(t *testing.T, ctx context.Context, f Fixture) {
	info, err := f.Driver.Probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, watches := f.Driver.(driver.Watcher)
	_, scales := f.Driver.(driver.Scaler)
	_, dials := f.Driver.(driver.Dialer)
	_, execs := f.Driver.(driver.Execer)
	_, logs := f.Driver.(driver.Logger)
	_, ganger := f.Driver.(driver.Ganger)
	_, turner := f.Driver.(driver.Turner)
	for _, c := range []struct {
		name      string
		says, has bool
	}{
		{"Watcher", info.Watches, watches},
		{"Scaler", info.Scales, scales},
		{"Dialer", info.Dials, dials},
		{"Execer", info.Execs, execs},
		{"Logger", info.Logs, logs},
		{"Ganger", info.Gangs, ganger},
		{"Turner", info.Turns, turner},
	} {
		if c.says && !c.has {
			t.Errorf("Info announces %s, the driver has none", c.name)
		}
	}
	if info.Watches && watches && !info.Scales { // of one that scales only nodes may be watched, see Scale
		watch(t, ctx, f)
	}
	if info.Execs && execs {
		execute(t, ctx, f)
	}
}

func watch(t *testing.T, ctx context.Context, f Fixture) {
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hints, err := f.Driver.(driver.Watcher).Watch(wctx)
	if err != nil {
		t.Fatal(err)
	}
	l := f.Launch("true")
	start(ctx, t, f.Driver, l)
	for { // a hint may come before the change it is about
		select {
		case <-hints:
		case <-ctx.Done():
			t.Fatal("no hint of the end of a task")
		}
		all, err := f.Driver.Observe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 && all[0].State == berth.TaskDone {
			break
		}
	}
	cancel()
	for range hints { // until it is closed
	}
}

func execute(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("sleep 600")
	h := start(ctx, t, f.Driver, l)
	until(ctx, t, f.Driver, l.Task, func(o driver.Observed) bool { return o.State == berth.TaskRunning })
	var out strings.Builder
	code, err := f.Driver.(driver.Execer).Exec(ctx, h, driver.Command{Args: []string{"sh", "-c", "echo $BERTH_TASK; exit 3"}, Stdout: &out})
	if err != nil || code != 3 || strings.TrimSpace(out.String()) != string(l.Task) {
		t.Errorf("code %d, %v, output %q", code, err, out.String())
	}
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	Wait(ctx, t, f.Driver, l.Task)
}
