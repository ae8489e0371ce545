package slurm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth/internal/driver"
)

// TestCloseCallsOff: what a driver was to do later by itself it does not do once it is closed: the
// jobs that are left without a task are not canceled, none may start that may not yet, and a task
// that was asked to stop is not asked again. The next server does all that.
func TestCloseCallsOff(t *testing.T) {
	sbatch(t, 10000)
	calls := tools(t, "scancel", "scontrol")
	synctest.Test(t, func(t *testing.T) {
		d := openArrays(t, t.TempDir())
		name, ids := startArray(t, d, 2*firstJobs)
		next(t, d, name, ids, 0)
		next(t, d, name, ids, 0, 0)
		if err := d.Stop(t.Context(), handle(ids[1]), driver.Stop{Grace: time.Minute}); err != nil {
			t.Fatal(err)
		}
		before := calls()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if after := calls(); after != before {
			t.Errorf("after it was closed: %q", strings.TrimPrefix(after, before))
		}
	})
}

// TestCloseWaits: a command that runs when the driver is closed has ended when Close returns.
func TestCloseWaits(t *testing.T) {
	sbatch(t, 10000)
	tools(t)
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	text := "#!/bin/sh\necho $$ > " + pid + ".new && mv " + pid + ".new " + pid + "\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(dir, "scancel"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	d := openArrays(t, t.TempDir())
	name, ids := startArray(t, d, 3)
	next(t, d, name, ids, 0)
	next(t, d, name, ids, 0, 0)
	var written []byte
	for written == nil { // until it runs
		time.Sleep(10 * time.Millisecond)
		written, _ = os.ReadFile(pid)
	}
	running, err := strconv.Atoi(strings.TrimSpace(string(written)))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(running, 0); err == nil {
		_ = syscall.Kill(running, syscall.SIGKILL)
		t.Error("scancel runs after Close")
	}
}
