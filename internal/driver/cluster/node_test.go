//go:build linux

package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/cluster"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/host"
)

func add(t *testing.T, d *cluster.Driver, s driver.NodeSpec) {
	t.Helper()
	if err := d.AddNode(limited(t), s); err != nil {
		t.Fatal(err)
	}
}

// run runs a command on a node to its end and returns that, and the output.
func run(t *testing.T, d *cluster.Driver, l berth.Launch) (*berth.Exit, string) {
	t.Helper()
	ctx := limited(t)
	l.LogFile = filepath.Join(t.TempDir(), "log")
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	o := drivertest.Wait(ctx, t, d, l.Task)
	b, _ := os.ReadFile(l.LogFile)
	return o.Exit, string(b)
}

func TestRestartHost(t *testing.T) {
	d, dir := open(t)
	add(t, d, driver.NodeSpec{Name: "n", CPUs: 1, Memory: 256 << 20, Slots: 2})
	_, first := run(t, d, berth.Launch{Task: "a.1", Node: "n", Command: "cat /proc/self/cgroup"})
	kill(t, filepath.Join(dir, "n"))
	_, second := run(t, d, berth.Launch{Task: "b.1", Node: "n", Command: "cat /proc/self/cgroup"}) // by Start
	if strings.ReplaceAll(first, "a.1", "") != strings.ReplaceAll(second, "b.1", "") && !strings.Contains(second, "berth-node-") {
		t.Errorf("first in %s, then in %s", first, second)
	}
	// A host whose reaper is asked to end does, and is started again too.
	c := host.NewClient(filepath.Join(dir, "n"))
	defer c.Close()
	info, err := c.Info(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.Reaper, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait(t, "the host to end", func() bool { return len(runner.Belonging(filepath.Join(dir, "n"))) == 0 })
	all, err := d.Observe(limited(t))
	if err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestTaskOutlivesHost kills the reaper of a node, then all of its host, while a task runs: it runs
// on to its end, within its limits.
func TestTaskOutlivesHost(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	add(t, d, driver.NodeSpec{Name: "n", CPUs: 1, Memory: 256 << 20})
	stop, log := filepath.Join(t.TempDir(), "stop"), filepath.Join(t.TempDir(), "log")
	l := berth.Launch{Task: "a.1", Node: "n", Command: "echo on; until [ -e " + stop + " ]; do sleep 0.05; done; echo over", LogFile: log}
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	says := func(what string) {
		t.Helper()
		wait(t, "the task to say "+what, func() bool {
			b, _ := os.ReadFile(log)
			return strings.Contains(string(b), what)
		})
	}
	says("on")
	c := host.NewClient(filepath.Join(dir, "n"))
	defer c.Close()
	before, err := c.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(before.Reaper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var now host.Info
	wait(t, "the worker to take the reaper's place", func() bool {
		now, err = c.Info(ctx)
		return err == nil && now.Reaper != before.Reaper
	})
	for _, pid := range []int{now.Reaper, now.PID} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Observe(ctx) // which starts the host again
	if err != nil || len(all) != 1 || all[0].State == berth.TaskDone {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	drivertest.Wait(ctx, t, d, l.Task)
	says("over")
}

// TestRest ends all hosts, as is done after a server that had nothing to run; the nodes are there
// for the next one.
func TestRest(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	nodes := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for _, n := range nodes {
		add(t, d, driver.NodeSpec{Name: filepath.Base(n), Memory: 256 << 20})
	}
	// On the third one something runs, as an instance does: it stays as it is.
	add(t, d, driver.NodeSpec{Name: "c", Memory: 256 << 20})
	l := berth.Launch{Task: "c.1", Node: "c", Command: "sleep 600", LogFile: filepath.Join(t.TempDir(), "log")}
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	wait(t, "the task", func() bool {
		all, err := d.Observe(ctx)
		return err == nil && len(all) == 1 && all[0].State == berth.TaskRunning
	})
	before := runner.Belonging(filepath.Join(dir, "c"))
	if kept, err := cluster.StopIdle(ctx, dir); err != nil || kept != 1 {
		t.Fatal(kept, err)
	}
	if diff := cmp.Diff(before, runner.Belonging(filepath.Join(dir, "c"))); diff != "" {
		t.Errorf("processes of the node that runs something: %s", diff)
	}
	if err := d.RemoveNode(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	wait(t, "the hosts to end", func() bool { return len(runner.Belonging(nodes...)) == 0 })
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/berth-node-" + cluster.GroupName(dir) + "*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	d = reopen(t, dir)
	if exit, _ := run(t, d, berth.Launch{Task: "a.1", Node: "a", Command: "true"}); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	if kept, err := cluster.StopIdle(ctx, filepath.Join(dir, "nowhere")); err != nil || kept != 0 {
		t.Error(kept, err)
	}
}

// TestRemoveStubborn gives back a node whose tasks defend themselves: by ignoring signals, by
// leaving their session and their parent, by dropping their marks, by making their directory
// read-only. Half of the time its host was killed before.
func TestRemoveStubborn(t *testing.T) {
	for _, killed := range []bool{false, true} {
		d, dir := open(t)
		ctx := limited(t)
		add(t, d, driver.NodeSpec{Name: "n", CPUs: 1, Memory: 256 << 20, Slots: 4})
		log := filepath.Join(t.TempDir(), "log")
		l := berth.Launch{Task: "a.1", Node: "n", LogFile: log, Command: `trap '' TERM INT HUP
mkdir -p ro/in; touch ro/in/file; chmod 500 ro ro/in
(setsid sh -c 'trap "" TERM; echo daemon; while :; do sleep 600; done' &)
setsid env -i sh -c 'cd /; trap "" TERM; echo bare $$; while :; do sleep 601; done' &
while :; do sleep 600; done`}
		if _, err := d.Start(ctx, l); err != nil {
			t.Fatal(err)
		}
		var bare int
		wait(t, "the task's processes", func() bool {
			b, _ := os.ReadFile(log)
			if i := strings.Index(string(b), "bare "); i >= 0 {
				_, _ = fmt.Sscanf(string(b[i:]), "bare %d\n", &bare)
			}
			return bare > 0 && strings.Contains(string(b), "daemon")
		})
		if killed {
			c := host.NewClient(filepath.Join(dir, "n"))
			info, err := c.Info(ctx)
			c.Close()
			if err != nil {
				t.Fatal(err)
			}
			_ = syscall.Kill(info.Reaper, syscall.SIGKILL)
			_ = syscall.Kill(info.PID, syscall.SIGKILL)
		}
		if err := d.RemoveNode(ctx, "n"); err != nil {
			t.Fatal(err)
		}
		drivertest.Leaks(t, dir, "berth-node-"+cluster.GroupName(dir))
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", bare)); err == nil && !strings.Contains(string(stat), ") Z ") && runner.NodeGroups("x").Check() == nil {
			t.Errorf("process %d, without a mark, is left (host killed before: %v)", bare, killed)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the directory of nodes is left: %v", err)
		}
	}
}

// TestHalves finds what servers leave that are killed in the middle of making or removing a node.
func TestHalves(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	if err := os.MkdirAll(filepath.Join(dir, "made"), 0o700); err != nil { // before anything is known of it
		t.Fatal(err)
	}
	add(t, d, driver.NodeSpec{Name: "gone", Memory: 256 << 20})
	l := berth.Launch{Task: "a.1", Node: "gone", Command: "sleep 600", LogFile: filepath.Join(t.TempDir(), "log")}
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "gone", "node.json"), filepath.Join(dir, "gone", "removed.json")); err != nil {
		t.Fatal(err)
	}
	d = reopen(t, dir)
	info, err := d.Probe(ctx)
	if err != nil || len(info.Nodes) != 2 {
		t.Errorf("what is half there can be found to be removed: %+v, %v", info.Nodes, err)
	}
	if all, err := d.Observe(ctx); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, n := range []string{"made", "gone"} {
		if _, err := d.Start(ctx, berth.Launch{Task: "b.1", Node: n, Command: "true"}); berth.CodeOf(err) != berth.NotFound {
			t.Errorf("%v", err)
		}
		add(t, d, driver.NodeSpec{Name: n, Memory: 256 << 20})
		if exit, _ := run(t, d, berth.Launch{Task: berth.TaskID(n + ".1"), Node: n, Command: "true"}); !exit.OK() {
			t.Errorf("%s: exit %+v", n, exit)
		}
	}
	if all, err := d.Observe(ctx); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v: the task of the node that was being removed must not come back", all, err)
	}
}

// TestVanished takes a node's directory away.
func TestVanished(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	add(t, d, driver.NodeSpec{Name: "n", Memory: 256 << 20})
	add(t, d, driver.NodeSpec{Name: "other", Memory: 256 << 20})
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(filepath.Join(dir, "n"), away); err != nil {
		t.Fatal(err)
	}
	_, err := d.Start(ctx, berth.Launch{Task: "a.1", Node: "n", Command: "true"})
	if berth.CodeOf(err) != berth.NotFound || !strings.Contains(err.Error(), "no node n") {
		t.Errorf("%v", err)
	}
	if all, err := d.Observe(ctx); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := os.Rename(away, filepath.Join(dir, "n")); err != nil { // for the end
		t.Fatal(err)
	}
	add(t, d, driver.NodeSpec{Name: "n"})
}

// TestDeep has a directory too deep for a socket's path.
func TestDeep(t *testing.T) {
	ctx := limited(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep", 30))
	d := reopen(t, dir)
	t.Cleanup(func() { _ = d.RemoveNode(context.Background(), "n") }) // also when the test fails
	add(t, d, driver.NodeSpec{Name: "n", Memory: 256 << 20})
	if exit, _ := run(t, d, berth.Launch{Task: "b.1", Node: "n", Command: "true"}); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	if err := d.RemoveNode(ctx, "n"); err != nil {
		t.Fatal(err)
	}
	drivertest.Leaks(t, dir, "berth-node-"+cluster.GroupName(dir))
	if left, _ := filepath.Glob(filepath.Join(temp, "*", "*.sock")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestManyNodes makes and gives back many nodes at once.
func TestManyNodes(t *testing.T) {
	ctx := limited(t)
	d, _ := open(t)
	const n = 12
	errs := make(chan error, n)
	for i := range n {
		go func() {
			name := fmt.Sprint("n", i)
			err := d.AddNode(ctx, driver.NodeSpec{Name: name, Memory: 256 << 20, CPUs: 1, Slots: 1})
			if err == nil {
				_, err = d.Start(ctx, berth.Launch{Task: berth.TaskID(name + ".1"), Node: name, Command: "sleep 600"})
			}
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if all, err := d.Observe(ctx); err != nil || len(all) != n {
		t.Errorf("%d tasks, %v", len(all), err)
	}
	for i := range n {
		go func() { errs <- d.RemoveNode(ctx, fmt.Sprint("n", i)) }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if all, err := d.Observe(ctx); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("waiting for %s", what)
		}
	}
}
