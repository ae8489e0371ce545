//go:build linux

package cluster_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/runner/host"
)

// TestTermKeepsTasks asks both processes of a node's host to end while a command runs: its exit code arrives all the same.
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
