package slurm

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
)

// TestTurnWhileSubmitted: a job that asks before the start of its task has returned asks again,
// instead of ending or taking another's task.
func TestTurnWhileSubmitted(t *testing.T) {
	sbatch(t, 10000)
	tools(t, "scancel")
	d := openArrays(t, t.TempDir())
	name, ids := startArray(t, d, 2)
	busy := func(is bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, id := range ids {
			if r := d.records[id]; is {
				r.busy = make(chan struct{})
			} else {
				close(r.busy)
				r.busy = nil
			}
		}
	}
	busy(true)
	for job := range ids {
		answer, err := d.Turn(t.Context(), ids[job], berth.Turn{Array: name, Runner: job})
		if berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("job %d is answered %+v, %v", job, answer, err)
		}
	}
	busy(false)
	if got := next(t, d, name, ids, 1); got != 1 {
		t.Errorf("job 1 is given %d", got)
	}
	d.mu.Lock()
	d.records[ids[0]].busy = make(chan struct{})
	d.mu.Unlock()
	ended := 1
	if answer, err := d.Turn(t.Context(), ids[1], berth.Turn{Array: name, Runner: 1, Ended: &ended}); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("while the last task is being submitted, job 1 is answered %+v, %v", answer, err)
	}
}

// TestThinSparesJobsWithTasks: the next server does not cancel a job that runs another's task, even
// though it has not asked that server.
func TestThinSparesJobsWithTasks(t *testing.T) {
	sbatch(t, 10000)
	canceled := tools(t, "scancel")
	d := openArrays(t, t.TempDir())
	name, _ := startArray(t, d, 6)
	d.mu.Lock()
	a := d.arrays[name]
	a.turns.given(4, 5) // as it was read from the file
	a.turns.given(5, 0)
	a.turns.given(3, 0)
	d.mu.Unlock()
	d.thin(t.Context(), a)
	if got := canceled(); got != "scancel 1_[3-4]\n" {
		t.Errorf("canceled: %q", got)
	}
}

// TestTurnDiskFull: half a line that a full disk left is taken back, so that the next one can be
// read.
func TestTurnDiskFull(t *testing.T) {
	sbatch(t, 10000)
	tools(t, "scancel")
	dir := t.TempDir()
	d := openArrays(t, dir)
	name, ids := startArray(t, d, 3)
	info, err := os.Stat(d.arrays[name].path)
	if err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(info.Size()) + 7, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = d.Turn(t.Context(), ids[0], berth.Turn{Array: name})
	if rerr := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("while the disk is full: %v", err)
	}
	if got := next(t, d, name, ids, 0); got != 0 {
		t.Errorf("job 0 is given %d", got)
	}
	if got := next(t, openArrays(t, dir), name, ids, 1); got != 1 {
		t.Errorf("the next server gives job 1 %d", got)
	}
}

// TestGivenWhileLookedFor: what the accounts say of the job that a task had is not about the job
// that it was given to meanwhile.
func TestGivenWhileLookedFor(t *testing.T) {
	sbatch(t, 10000)
	tools(t, "scancel")
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sacct"), []byte("#!/bin/sh\necho asked > "+gate+"\ncat "+gate+" > /dev/null\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	d := openArrays(t, t.TempDir())
	name, ids := startArray(t, d, 3)
	next(t, d, name, ids, 0)
	r := d.records[ids[2]]
	missed := make(chan error)
	go func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		r.gone, r.submitted = time.Now().Add(-2*accountsTime), time.Time{}
		missed <- d.missing(context.WithoutCancel(t.Context()), r, time.Now())
	}()
	if _, err := os.ReadFile(gate); err != nil { // sacct was asked
		t.Fatal(err)
	}
	if got := next(t, d, name, ids, 0, 0); got != 2 {
		t.Errorf("job 0 is given %d", got)
	}
	if err := os.WriteFile(gate, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-missed; err != nil || r.Exit != nil || r.Job != "1_0" {
		t.Errorf("task 2, which job %s runs, has ended %+v, %v", r.Job, r.Exit, err)
	}
}
