package drivertest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// longNames tells tasks apart whose ids are as long as they get, or differ only in what some
// engines do not distinguish.
func longNames(t *testing.T, ctx context.Context, f Fixture) {
	long := strings.Repeat("n", 160)
	ids := []berth.TaskID{
		berth.TaskID(long + "a.1"), berth.TaskID(long + "b.1"), berth.TaskID(long + "b.1-1"),
		"Job.1", "job.1", "job_1.1", "job-1.1", "job.11",
	}
	for i, id := range ids {
		l := f.Launch(fmt.Sprintf("exit %d", i))
		l.Task = id
		start(ctx, t, f.Driver, l)
	}
	for i, id := range ids {
		if o := Wait(ctx, t, f.Driver, id); o.Exit == nil || o.Exit.Code != i {
			t.Errorf("%s: exit %+v, want code %d", id, o.Exit, i)
		}
	}
}

// canceled waits for the end of a task that was stopped.
func canceled(ctx context.Context, t *testing.T, d driver.Driver, id berth.TaskID) {
	t.Helper()
	if o := Wait(ctx, t, d, id); o.Exit == nil || o.Exit.Cause != "canceled" || o.Exit.OK() {
		t.Errorf("%s: exit %+v, want cause canceled", id, o.Exit)
	}
}

// stopAtOnce stops a task before its target can have done anything about it.
func stopAtOnce(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("sleep 600")
	h := start(ctx, t, f.Driver, l)
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: limit}); err != nil {
		t.Fatal(err)
	}
	canceled(ctx, t, f.Driver, l.Task)
}

// stopTwice stops a task again while it ends, with less patience.
func stopTwice(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("trap '' TERM; echo deaf; sleep 600; sleep 600")
	h := start(ctx, t, f.Driver, l)
	until(ctx, t, f.Driver, l.Task, func(o driver.Observed) bool {
		if f.logs(l) {
			return f.log(l) == "deaf\n"
		}
		return o.State == berth.TaskRunning
	})
	for _, grace := range []time.Duration{limit, 100 * time.Millisecond} {
		if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: grace}); err != nil {
			t.Fatal(err)
		}
	}
	canceled(ctx, t, f.Driver, l.Task)
}

// stopFinished stops a task that is over: how it ended does not change.
func stopFinished(t *testing.T, ctx context.Context, f Fixture) {
	l := f.Launch("exit 3")
	h := start(ctx, t, f.Driver, l)
	before := Wait(ctx, t, f.Driver, l.Task)
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before.Exit, Wait(ctx, t, f.Driver, l.Task).Exit); diff != "" {
		t.Errorf("its exit changed: %s", diff)
	}
}

// logWhole looks for every byte that a task wrote, the last ones without a line's end, once the
// task is done.
func logWhole(t *testing.T, ctx context.Context, f Fixture) {
	if f.Outputs == nil {
		t.Skip("no shell runs its tasks")
	}
	const lines = 200_000
	l := f.Launch(fmt.Sprintf("seq 1 %d; printf 'the end' >&2", lines))
	start(ctx, t, f.Driver, l)
	Wait(ctx, t, f.Driver, l.Task)
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	want.WriteString("the end")
	if got := f.log(l); got != want.String() {
		t.Errorf("%d bytes of the log arrived, want %d; it ends %q", len(got), want.Len(), got[max(0, len(got)-40):])
	}
}

// outputs looks for every file that a task wrote, once it is done.
func outputs(t *testing.T, ctx context.Context, f Fixture) {
	if f.Outputs == nil {
		t.Skip("nobody keeps what its tasks write")
	}
	l := f.Launch("cd ${{outputs.model}}; mkdir -p deep/er; for i in $(seq 1 40); do echo $i > deep/er/$i; done; seq 1 300000 > big; : > 'an empty one'")
	arrived := f.Outputs(&l)
	start(ctx, t, f.Driver, l)
	if o := Wait(ctx, t, f.Driver, l.Task); !o.Exit.OK() {
		t.Errorf("exit %+v; log %q", o.Exit, f.log(l))
	}
	got := arrived()
	if len(got) != 42 {
		t.Errorf("%d files arrived, want 42: %v", len(got), slices.Sorted(maps.Keys(got)))
	}
	for i := range 40 {
		if name := fmt.Sprintf("deep/er/%d", i+1); got[name] != fmt.Sprintln(i+1) {
			t.Errorf("%s: %q", name, got[name])
		}
	}
	if big := got["big"]; !strings.HasSuffix(big, "\n299999\n300000\n") {
		t.Errorf("big has %d bytes", len(big))
	}
}

// outputsOfStopped looks for what a task kept when it was asked to stop.
func outputsOfStopped(t *testing.T, ctx context.Context, f Fixture) {
	if f.Outputs == nil {
		t.Skip("nobody keeps what its tasks write")
	}
	l := f.Launch("trap 'echo saved > ${{outputs.model}}/kept; echo bye; exit 1' TERM; echo hi; sleep 600 & wait")
	arrived := f.Outputs(&l)
	h := start(ctx, t, f.Driver, l)
	until(ctx, t, f.Driver, l.Task, func(driver.Observed) bool { return f.log(l) == "hi\n" })
	if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: limit}); err != nil {
		t.Fatal(err)
	}
	canceled(ctx, t, f.Driver, l.Task)
	if diff := gocmp.Diff(map[string]string{"kept": "saved\n"}, arrived()); diff != "" {
		t.Errorf("outputs: %s", diff)
	}
	if got := f.log(l); got != "hi\nbye\n" {
		t.Errorf("log %q", got)
	}
}

// orphans looks for processes that a task left, in sessions of their own: they end with it.
func orphans(t *testing.T, ctx context.Context, f Fixture) {
	if f.Outputs == nil {
		t.Skip("no shell runs its tasks")
	}
	mark := fmt.Sprint(1_000_000 + rand.IntN(1_000_000_000))
	l := f.Launch(fmt.Sprintf("setsid sleep %s >/dev/null 2>&1 & nohup sleep %s >/dev/null 2>&1 & sleep 0.2; echo x", mark, mark))
	start(ctx, t, f.Driver, l)
	Wait(ctx, t, f.Driver, l.Task)
	for len(withArgument(mark)) > 0 {
		select {
		case <-ctx.Done():
			t.Fatalf("processes %v are left", withArgument(mark))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// withArgument are the processes of this machine with an argument, those of containers too.
func withArgument(arg string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), "\x00"+arg+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// nothingLeft removes tasks that ended in several ways, and looks for what is left of them.
func nothingLeft(t *testing.T, ctx context.Context, f Fixture) {
	if f.Left == nil {
		t.Skip("what is left of its tasks cannot be seen")
	}
	before := f.Left(t)
	for i, command := range []string{"true", "exit 3", "sleep 600"} {
		l := f.Launch(command)
		h := start(ctx, t, f.Driver, l)
		if i == 2 {
			if err := f.Driver.Stop(ctx, h, driver.Stop{Grace: time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		Wait(ctx, t, f.Driver, l.Task)
		if err := f.Driver.Remove(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	for {
		left := f.Left(t)
		if len(left) <= len(before) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("left: %v; before: %v", left, before)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// away makes the target unreachable while a task runs: meanwhile it is all or an error, and
// afterwards the task has run once, and ended as it did.
func away(t *testing.T, ctx context.Context, f Fixture) {
	if f.Away == nil {
		t.Skip("the target is always there")
	}
	l := f.Launch("echo x; sleep 1; exit 3")
	h := start(ctx, t, f.Driver, l)
	until(ctx, t, f.Driver, l.Task, func(o driver.Observed) bool { return o.State == berth.TaskRunning })
	back := f.Away(t)
	for range 3 {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		all, err := f.Driver.Observe(short)
		cancel()
		switch {
		case err != nil && berth.CodeOf(err) != berth.Unavailable:
			t.Errorf("Observe while it is away: %v, want unavailable", err)
		case err == nil && len(all) != 1:
			t.Errorf("Observe while it is away lists %v, and no error", all)
		}
	}
	back()
	for {
		all, err := f.Driver.Observe(ctx)
		if err != nil && berth.CodeOf(err) != berth.Unavailable {
			t.Fatalf("Observe: %v", err)
		}
		if err == nil {
			if len(all) != 1 {
				t.Fatalf("Observe lists %v", all)
			}
			if o := all[0]; o.State == berth.TaskDone {
				if o.Exit.Code != 3 || o.Exit.Cause != "" {
					t.Errorf("exit %+v, want code 3", o.Exit)
				}
				break
			}
		}
		select {
		case <-ctx.Done():
			t.Fatal("its end was not seen")
		case <-time.After(20 * time.Millisecond):
		}
	}
	if again := start(ctx, t, f.Driver, l); again != h {
		t.Errorf("handles %q and %q", h, again)
	}
	once(t, f, l)
}

// diskFull runs a task on a node whose disk is full: it ends with a reason or is not taken, and
// later ones run.
func diskFull(t *testing.T, ctx context.Context, f Fixture) {
	if f.Full == nil {
		t.Skip("the disk of its nodes cannot be filled")
	}
	f, free := f.Full(t)
	l := f.Launch("echo x; head -c 50000000 /dev/zero > big || exit 3")
	if _, err := f.Driver.Start(ctx, l); err == nil {
		if o := Wait(ctx, t, f.Driver, l.Task); o.Exit.OK() || o.Exit.Reason == "" {
			t.Errorf("exit %+v, want a failure with a reason", o.Exit)
		} else {
			t.Logf("a task on a full disk ended: %s", o.Exit.Reason)
		}
	} else if berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("Start: %v, want unavailable", err)
	} else {
		t.Logf("a task on a full disk was not taken: %v", err)
	}
	free()
	l = f.Launch("echo x")
	for {
		_, err := f.Driver.Start(ctx, l)
		if err == nil {
			break
		}
		if berth.CodeOf(err) != berth.Unavailable || ctx.Err() != nil {
			t.Fatalf("Start: %v", err)
		}
	}
	if o := Wait(ctx, t, f.Driver, l.Task); !o.Exit.OK() {
		t.Errorf("exit %+v with room on the disk", o.Exit)
	}
	once(t, f, l)
}
