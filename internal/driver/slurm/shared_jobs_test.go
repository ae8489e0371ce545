//go:build engines

package slurm_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
)

// startAll starts tasks at the same time.
func (f *fixture) startAll(ctx context.Context, t *testing.T, all []berth.Launch) []driver.Handle {
	t.Helper()
	handles := make([]driver.Handle, len(all))
	var wg sync.WaitGroup
	for i, l := range all {
		wg.Go(func() {
			var err error
			if handles[i], err = f.d.Start(ctx, l); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return handles
}

// TestTurnsOnNodes: many short tasks are run by few jobs of Slurm, each once and with a log of its
// own, beside one that fails and one that takes long. The jobs that were not needed are canceled.
func TestTurnsOnNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := openOn(t, slurmtest.Start(t, 1, 4))
	dir := t.TempDir()
	const n = 60
	var all []berth.Launch
	for i := range n {
		command := fmt.Sprintf("echo %d; echo ran >> %s/%d; echo $SLURM_JOB_ID > %s/job-%d", i, dir, i, dir, i)
		switch i {
		case 5:
			command += "; exit 3"
		case 6:
			command += "; sleep 300 & sleep 2" // what it leaves behind ends with it
		}
		all = append(all, f.launch(i, command))
	}
	handles := f.startAll(ctx, t, all)
	jobs := map[string]bool{}
	for i, l := range all {
		o := drivertest.Wait(ctx, t, f.d, l.Task)
		if want := map[int]int{5: 3}[i]; o.Exit.Code != want || o.Exit.Cause != "" {
			t.Errorf("task %d: %+v", i, o.Exit)
		}
		if got := f.log(l); got != fmt.Sprintln(i) {
			t.Errorf("task %d: log %q", i, got)
		}
		if b, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint(i))); string(b) != "ran\n" {
			t.Errorf("task %d: %q", i, b)
		}
		b, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint("job-", i)))
		jobs[string(b)] = true
	}
	if len(jobs) >= n {
		t.Errorf("%d tasks were run by %d jobs", n, len(jobs))
	}
	t.Logf("%d tasks were run by %d jobs", n, len(jobs))
	for _, h := range handles {
		if err := f.d.Remove(ctx, h); err != nil {
			t.Error(err)
		}
	}
	for { // the queue is empty at last
		out, err := exec.CommandContext(ctx, "squeue", "--noheader", "--array").Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(out)) == "" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, "tasks", "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTurnsAndStops: of tasks that share jobs each is stopped by itself: one that runs, one that
// waits, and none that another job took over.
func TestTurnsAndStops(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := openOn(t, slurmtest.Start(t, 1, 1)) // one at a time
	gate := filepath.Join(t.TempDir(), "gate")
	var all []berth.Launch
	for i := range 8 {
		all = append(all, f.launch(i, fmt.Sprintf("echo %d; until [ -e %s ]; do sleep 0.1; done; sleep 0.2", i, gate)))
	}
	handles := f.startAll(ctx, t, all)
	running := -1
	for running < 0 {
		if _, err := f.d.Observe(ctx); err != nil {
			t.Fatal(err)
		}
		for i, l := range all {
			if f.log(l) != "" {
				running = i
			}
		}
	}
	stopped := map[int]bool{running: true, (running + 3) % 8: true}
	for i := range stopped {
		if err := f.d.Stop(ctx, handles[i], driver.Stop{Grace: time.Minute, Cause: "timeout", Why: "enough"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		o := drivertest.Wait(ctx, t, f.d, l.Task)
		if stopped[i] && (o.Exit.Cause != "timeout" || o.Exit.Reason != "enough") || !stopped[i] && !o.Exit.OK() {
			t.Errorf("task %d, stopped %v: %+v", i, stopped[i], o.Exit)
		}
	}
}

// TestTurnsOfLongTasks: of a large array of tasks that take long all run at the same time, although
// only some of its jobs may start at first.
func TestTurnsOfLongTasks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := openOn(t, slurmtest.Start(t, 2, 16))
	gate := filepath.Join(t.TempDir(), "gate")
	var all []berth.Launch
	for i := range 28 { // more than start at first, and as many as there are CPUs for
		all = append(all, f.launch(i, fmt.Sprintf("echo %d; until [ -e %s ]; do sleep 0.5; done", i, gate)))
	}
	f.startAll(ctx, t, all)
	for running := 0; running < len(all); time.Sleep(100 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("%d of %d run", running, len(all))
		}
		running = 0
		for _, l := range all {
			if f.log(l) != "" {
				running++
			}
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if o := drivertest.Wait(ctx, t, f.d, l.Task); !o.Exit.OK() {
			t.Errorf("%+v", o.Exit)
		}
	}
}
