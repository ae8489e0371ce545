//go:build linux

package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/cluster"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/runner/host"
)

// TestTermKeepsTasks asks both processes of a node's host to end while a command runs: its exit
// code arrives all the same.
func TestTermKeepsTasks(t *testing.T) {
	ctx := limited(t)
	d, dir := open(t)
	add(t, d, driver.NodeSpec{Name: "n", Slots: 1})
	out := t.TempDir()
	l := berth.Launch{
		Task: "a.1", Node: "n", LogFile: filepath.Join(out, "log"),
		Command: "echo up; until [ -e " + out + "/go ]; do sleep 0.02; done; exit 7",
	}
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	wait(t, "the task", func() bool { b, _ := os.ReadFile(l.LogFile); return string(b) == "up\n" })
	c := host.NewClient(filepath.Join(dir, "n"))
	defer c.Close()
	at, err := c.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{at.PID, at.Reaper} {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if _, err := d.Observe(ctx); err != nil && berth.CodeOf(err) != berth.Unavailable {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(out, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := drivertest.Wait(ctx, t, d, l.Task); o.Exit == nil || o.Exit.Code != 7 {
		t.Errorf("exit %+v, want code 7", o.Exit)
	}
}

// TestNodeOfTwoServers: while a server makes a node, the next that leads waits for it. From then on
// the one before changes no node, and nothing of the node is left when the next has removed it.
func TestNodeOfTwoServers(t *testing.T) {
	ctx := limited(t)
	second, dir := open(t)
	t.Cleanup(func() { os.RemoveAll(filepath.Join(dir, ".locks")); os.Remove(filepath.Join(dir, "term.6")) }) // they stay
	gate := filepath.Join(t.TempDir(), "gate")
	slow := `while [ ! -e "$1" ]; do sleep 0.02; done; shift; exec "$@"`
	d, err := cluster.Open(driver.Config{Name: "cluster", Dir: dir, Host: []string{"sh", "-c", slow, "-", gate, os.Args[0], "_host"}})
	if err != nil {
		t.Fatal(err)
	}
	first := d.(*cluster.Driver)
	defer first.Close()
	before, after := berth.WithTerm(ctx, 5), berth.WithTerm(ctx, 6)
	made := make(chan error, 1)
	go func() { made <- first.AddNode(before, driver.NodeSpec{Name: "n", Slots: 1}) }()
	wait(t, "the node", func() bool { _, err := os.Stat(filepath.Join(dir, "n", "node.json")); return err == nil })
	short, cancel := context.WithTimeout(after, 100*time.Millisecond)
	defer cancel()
	if err := second.RemoveNode(short, "n"); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("removing a node that another server makes: %v", err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if err := second.RemoveNode(after, "n"); err != nil {
		t.Fatal(err)
	}
	if err := first.AddNode(before, driver.NodeSpec{Name: "n", Slots: 1}); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("making a node in a term that is over: %v", err)
	}
	if err := first.RemoveNode(before, "n"); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("removing a node in a term that is over: %v", err)
	}
	for _, name := range []string{"n", ".locks/n.lock"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}
