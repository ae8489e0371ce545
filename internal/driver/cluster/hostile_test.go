//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/runner/host"
)

// TestHungNode: a node whose host does not answer hides nothing of the others, and can be given
// back.
func TestHungNode(t *testing.T) {
	d, dir := open(t)
	for _, name := range []string{"good", "hung"} {
		add(t, d, driver.NodeSpec{Name: name, Slots: 1})
		if _, err := d.Start(limited(t), berth.Launch{Task: berth.TaskID(name + ".1"), Node: name, Command: "sleep 600", LogFile: filepath.Join(t.TempDir(), "log")}); err != nil {
			t.Fatal(err)
		}
	}
	c := host.NewClient(filepath.Join(dir, "hung"))
	defer c.Close()
	info, err := c.Info(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{info.Reaper, info.PID} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
		stopped(t, pid)
	}
	// The one is waited for as long as there is time; on a busy machine a second may not be enough
	// for the other.
	var seen []driver.Observed
	var unseen *driver.Unseen
	for limit := time.Second; limit < time.Minute && len(seen) == 0; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		seen, err = driver.NewTarget("clusters", d, nil).Observe(ctx)
		cancel()
	}
	if berth.CodeOf(err) != berth.Unavailable || !errors.As(err, &unseen) || !slices.Equal(unseen.Nodes, []string{"hung"}) {
		t.Fatalf("%v", err)
	}
	if len(seen) != 1 || seen[0].Task != "good.1" {
		t.Errorf("%+v", seen)
	}
	if err := d.RemoveNode(limited(t), "hung"); err != nil {
		t.Fatal(err)
	}
	if seen, err := d.Observe(limited(t)); err != nil || len(seen) != 1 {
		t.Errorf("%+v %v", seen, err)
	}
}

// TestDamagedRecord: a node whose record cannot be read is one that is to be given back; the others
// go on.
func TestDamagedRecord(t *testing.T) {
	d, dir := open(t)
	for _, name := range []string{"good", "torn"} {
		add(t, d, driver.NodeSpec{Name: name, Slots: 1})
	}
	if err := os.WriteFile(filepath.Join(dir, "torn", "node.json"), nil, 0o600); err != nil { // as a power cut may leave it
		t.Fatal(err)
	}
	d = reopen(t, dir)
	if _, err := d.Start(limited(t), berth.Launch{Task: "a.1", Node: "good", Command: "sleep 600", LogFile: filepath.Join(t.TempDir(), "log")}); err != nil {
		t.Fatal(err)
	}
	if seen, err := d.Observe(limited(t)); err != nil || len(seen) != 1 {
		t.Errorf("%+v %v", seen, err)
	}
	if _, err := d.Start(limited(t), berth.Launch{Task: "b.1", Node: "torn", Command: "true"}); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("%v", err)
	}
	info, err := d.Probe(limited(t))
	if err != nil || len(info.Nodes) != 2 {
		t.Fatalf("%+v %v", info.Nodes, err)
	}
	if err := d.RemoveNode(limited(t), "torn"); err != nil {
		t.Fatal(err)
	}
}

// stopped waits until every thread of a process stands still: the signal is only on its way when it
// was sent.
func stopped(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		still := len(threads) > 0
		for _, f := range threads {
			b, err := os.ReadFile(f)
			still = still && (err != nil || strings.Contains(string(b), ") T "))
		}
		if still {
			return
		}
	}
	t.Fatalf("process %d does not stop", pid)
}

// TestDirectoryGone: a node whose directory somebody moved away is given back with everything that
// runs on it.
func TestDirectoryGone(t *testing.T) {
	d, dir := open(t)
	add(t, d, driver.NodeSpec{Name: "n", Slots: 1, CPUs: 1, Memory: 1 << 30})
	if _, err := d.Start(limited(t), berth.Launch{Task: "a.1", Node: "n", Command: "sleep 600", LogFile: filepath.Join(t.TempDir(), "log")}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "n"), filepath.Join(t.TempDir(), "n")); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveNode(limited(t), "n"); err != nil {
		t.Fatal(err)
	}
	// What is left is found at the end of the test.
}
