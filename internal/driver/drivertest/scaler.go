package drivertest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// spec is a small node for a few tasks.
func spec(name string) driver.NodeSpec {
	return driver.NodeSpec{Name: name, Size: "Standard_Test", CPUs: 2, Memory: 256 << 20, Slots: 8}
}

// Scale tests the targets that make makes, which scale and have no nodes yet, one for each test.
// Run tests them with nodes.
func Scale(t *testing.T, make func(t *testing.T) Fixture) {
	tests := []struct {
		name string
		run  func(*testing.T, context.Context, Fixture, driver.Scaler)
	}{
		{"Empty", scaleEmpty},
		{"AddTwice", addTwice},
		{"AddConcurrently", addConcurrently},
		{"AddInvalid", addInvalid},
		{"RemoveUnknown", removeUnknown},
		{"RightNode", rightNode},
		{"NoNode", noNode},
		{"RemoveBusy", removeBusy},
		{"AddAgain", addAgain},
		{"RemoveWhileAdding", removeWhileAdding},
		{"Kill", killNode},
		{"WatchKill", watchKill},
		{"ReopenNodes", reopenNodes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			f := make(t)
			s, ok := f.Driver.(driver.Scaler)
			if !ok {
				t.Fatal("it cannot scale")
			}
			tt.run(t, ctx, f, s)
		})
	}
}

// names lists the nodes of a target.
func names(ctx context.Context, t *testing.T, d driver.Driver) []string {
	t.Helper()
	info, err := d.Probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, n := range info.Nodes {
		list = append(list, n.Name)
	}
	slices.Sort(list)
	return list
}

func add(ctx context.Context, t *testing.T, s driver.Scaler, nodes ...string) {
	t.Helper()
	for _, n := range nodes {
		if err := s.AddNode(ctx, spec(n)); err != nil {
			t.Fatalf("AddNode: %v", err)
		}
	}
}

func (f Fixture) on(node, command string) berth.Launch {
	l := f.Launch(command)
	l.Node = node
	return l
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func scaleEmpty(t *testing.T, ctx context.Context, f Fixture, _ driver.Scaler) {
	info, err := f.Driver.Probe(ctx)
	if err != nil || !info.Scales || len(info.Nodes) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if all, err := f.Driver.Observe(ctx); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func addTwice(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	add(ctx, t, s, "a")
	l := f.on("a", "sleep 600")
	start(ctx, t, f.Driver, l)
	add(ctx, t, s, "a")
	want(t, "nodes", names(ctx, t, f.Driver), []string{"a"})
	if o := look(ctx, t, f.Driver, l.Task); o == nil || o.State == berth.TaskDone {
		t.Errorf("the task is %+v", o)
	}
}

func addConcurrently(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			if err := s.AddNode(ctx, spec([]string{"a", "b", "c"}[i%3])); err != nil {
				t.Errorf("AddNode: %v", err)
			}
		})
	}
	group.Wait()
	want(t, "nodes", names(ctx, t, f.Driver), []string{"a", "b", "c"})
}

func addInvalid(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	for _, name := range []string{"", "..", "a/b", "a b"} {
		if err := s.AddNode(ctx, spec(name)); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%q: %v", name, err)
		}
		if err := s.RemoveNode(ctx, name); err != nil {
			t.Errorf("removing %q: %v", name, err)
		}
	}
	want(t, "nodes", names(ctx, t, f.Driver), []string(nil))
}

func removeUnknown(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	add(ctx, t, s, "a")
	for range 2 {
		if err := s.RemoveNode(ctx, "other"); err != nil {
			t.Error(err)
		}
	}
	want(t, "nodes", names(ctx, t, f.Driver), []string{"a"})
}

func rightNode(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	add(ctx, t, s, "a", "b", "c")
	places := map[berth.TaskID]string{}
	for i := range 9 {
		l := f.on([]string{"a", "b", "c"}[i%3], "true")
		places[l.Task] = l.Node
		h := start(ctx, t, f.Driver, l)
		if again := start(ctx, t, f.Driver, l); again != h {
			t.Errorf("handles %q and %q", h, again)
		}
	}
	for id, node := range places {
		if o := Wait(ctx, t, f.Driver, id); o.Node != node || !o.Exit.OK() {
			t.Errorf("%s is on %q, want %q; exit %+v", id, o.Node, node, o.Exit)
		}
	}
}

func noNode(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	add(ctx, t, s, "a")
	if _, err := f.Driver.Start(ctx, f.on("other", "true")); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("a task for a node that is not there: %v, want not found", err)
	}
	if all, err := f.Driver.Observe(ctx); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

func removeBusy(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	add(ctx, t, s, "a", "b")
	gone, stays := f.on("a", "sleep 600"), f.on("b", "sleep 600")
	h := start(ctx, t, f.Driver, gone)
	start(ctx, t, f.Driver, stays)
	running := func(o driver.Observed) bool { return o.State == berth.TaskRunning }
	until(ctx, t, f.Driver, gone.Task, running)
	until(ctx, t, f.Driver, stays.Task, running)
	if err := s.RemoveNode(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	want(t, "nodes", names(ctx, t, f.Driver), []string{"b"})
	if o := look(ctx, t, f.Driver, gone.Task); o != nil {
		t.Errorf("the task of a removed node is still %+v", o)
	}
	if o := look(ctx, t, f.Driver, stays.Task); o == nil || o.State != berth.TaskRunning {
		t.Errorf("the task of the other node is %+v", o)
	}
	if err := f.Driver.Stop(ctx, h, driver.Stop{}); err != nil {
		t.Errorf("stopping what went with its node: %v", err)
	}
	if err := f.Driver.Remove(ctx, h); err != nil {
		t.Errorf("removing what went with its node: %v", err)
	}
	if _, err := f.Driver.Start(ctx, gone); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("starting on a removed node: %v, want not found", err)
	}
}

func addAgain(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	for range 3 {
		add(ctx, t, s, "a")
		l := f.on("a", "exit 3")
		start(ctx, t, f.Driver, l)
		if o := Wait(ctx, t, f.Driver, l.Task); o.Exit.Code != 3 {
			t.Errorf("exit %+v", o.Exit)
		}
		if err := s.RemoveNode(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if all, err := f.Driver.Observe(ctx); err != nil || len(all) != 0 {
			t.Fatalf("%v, %v", all, err)
		}
	}
	want(t, "nodes", names(ctx, t, f.Driver), []string(nil))
}

// removeWhileAdding gives nodes back that are just being made, as a cluster does that is deleted:
// after the last call there is none.
func removeWhileAdding(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { _ = s.AddNode(ctx, spec("a")) })
		group.Go(func() {
			if err := s.RemoveNode(ctx, "a"); err != nil {
				t.Errorf("RemoveNode: %v", err)
			}
		})
	}
	group.Wait()
	if err := s.RemoveNode(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	want(t, "nodes", names(ctx, t, f.Driver), []string(nil))
}

func killNode(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	if f.Kill == nil {
		t.Skip("its nodes cannot be killed")
	}
	add(ctx, t, s, "a", "b")
	l, other := f.on("a", "sleep 600"), f.on("b", "sleep 600")
	start(ctx, t, f.Driver, l)
	start(ctx, t, f.Driver, other)
	until(ctx, t, f.Driver, l.Task, func(o driver.Observed) bool { return o.State == berth.TaskRunning })
	f.Kill(t, "a")
	if o := Wait(ctx, t, f.Driver, l.Task); o.Exit == nil || o.Exit.Cause != "lost" {
		t.Errorf("exit %+v, want cause lost", o.Exit)
	}
	if o := look(ctx, t, f.Driver, other.Task); o == nil || o.State == berth.TaskDone {
		t.Errorf("the task of the other node is %+v", o)
	}
	again := f.on("a", "true") // it is as good as new
	start(ctx, t, f.Driver, again)
	if o := Wait(ctx, t, f.Driver, again.Task); !o.Exit.OK() {
		t.Errorf("exit %+v", o.Exit)
	}
	f.Kill(t, "b")
	if err := s.RemoveNode(ctx, "b"); err != nil {
		t.Errorf("removing a node that was killed: %v", err)
	}
	want(t, "nodes", names(ctx, t, f.Driver), []string{"a"})
}

// watchKill wants a hint that a node was killed, each time: nobody else would tell.
func watchKill(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	w, ok := f.Driver.(driver.Watcher)
	if f.Kill == nil || !ok {
		t.Skip("its nodes cannot be killed, or it does not watch")
	}
	add(ctx, t, s, "before")
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hints, err := w.Watch(wctx)
	if err != nil {
		t.Fatal(err)
	}
	add(ctx, t, s, "after")
	for _, node := range []string{"before", "after", "before"} {
		l := f.on(node, "sleep 600")
		start(ctx, t, f.Driver, l)
		until(ctx, t, f.Driver, l.Task, func(o driver.Observed) bool { return o.State == berth.TaskRunning })
		select { // of what was before
		case <-hints:
		default:
		}
		f.Kill(t, node)
		select {
		case <-hints:
		case <-ctx.Done():
			t.Fatalf("no hint of the end of node %s", node)
		}
		Wait(ctx, t, f.Driver, l.Task)
	}
	cancel()
	for range hints { // until it is closed
	}
}

func reopenNodes(t *testing.T, ctx context.Context, f Fixture, s driver.Scaler) {
	if f.Reopen == nil {
		t.Skip("the target does not survive its driver")
	}
	add(ctx, t, s, "a", "b")
	l := f.on("b", "sleep 600")
	h := start(ctx, t, f.Driver, l)
	d := f.Reopen(t)
	want(t, "nodes", names(ctx, t, d), []string{"a", "b"})
	if o := look(ctx, t, d, l.Task); o == nil || o.Handle != h || o.Node != "b" {
		t.Errorf("%+v, want handle %q", o, h)
	}
	if err := d.(driver.Scaler).RemoveNode(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	want(t, "nodes", names(ctx, t, d), []string{"a"})
	want(t, "nodes as the first driver sees them", names(ctx, t, f.Driver), []string{"a"})
}

// look is what the target says of a task now, nil when it does not know it.
func look(ctx context.Context, t *testing.T, d driver.Driver, id berth.TaskID) *driver.Observed {
	t.Helper()
	all, err := d.Observe(ctx)
	if err != nil {
		t.Fatalf("Observe: %v", err)
	}
	for _, o := range all {
		if o.Task == id {
			return &o
		}
	}
	return nil
}
