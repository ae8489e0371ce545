//go:build linux

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/drivertest"
)

// TestDiskFull lets a command fill the disk of its host: how it ended is known, what it left is
// removed although nobody asks for that while the disk is full, and the next command runs. Of a log
// on that disk it is said that it may lack something.
func TestDiskFull(t *testing.T) {
	ctx := limited(t)
	dir, err := os.MkdirTemp("", "bf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("no tmpfs can be mounted here:", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	d := reopen(t, filepath.Join(dir, "host"))
	t.Cleanup(func() { _ = d.Shutdown(t.Context()) })
	h := newHome(t, t.TempDir())
	l := berth.Launch{
		Task: "t.1", LogFile: filepath.Join(dir, "log"), Home: berth.Home{URL: h.url, Token: "x"},
		Command: "echo begin; head -c 100M /dev/zero >big; seq 20000; exit 3",
	}
	if _, err := d.Start(ctx, l); err != nil {
		t.Fatal(err)
	}
	if o := drivertest.Wait(ctx, t, d, l.Task); o.Exit == nil || o.Exit.Code != 3 {
		t.Errorf("exit %+v, want code 3", o.Exit)
	}
	r := <-h.await(l.Task)
	if !strings.Contains(r.Warning, "its log may lack") {
		t.Errorf("the warning is %q", r.Warning)
	}
	wait(t, "its directory to be removed", func() bool {
		_, err := os.Stat(filepath.Join(dir, "host", "tasks", "t.1", "wd"))
		return os.IsNotExist(err)
	})
	next := berth.Launch{Task: "next.1", LogFile: filepath.Join(dir, "next"), Command: "echo on"}
	wait(t, "the next task to be taken", func() bool {
		_, err := d.Start(ctx, next)
		return err == nil
	})
	if o := drivertest.Wait(ctx, t, d, next.Task); !o.Exit.OK() {
		t.Errorf("exit %+v", o.Exit)
	}
}
