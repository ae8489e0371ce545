//go:build engines

package slurm_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
)

// TestAccounts: of jobs that the controller has forgotten, the accounts say how they ended.
func TestAccounts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	f := openOn(t, slurmtest.Start(t, 2, 4, slurmtest.Accounts, slurmtest.Cgroup, "MinJobAge=2", "PreemptType=preempt/partition_prio", "PreemptMode=CANCEL", "OverTimeLimit=0",
		"PartitionName=urgent Nodes=n1 PriorityTier=10 MaxTime=INFINITE State=UP"))
	const sleep = "echo ready; exec sleep 600"
	on1, on2 := f.with(t, `{"options":["--nodelist=n1"]}`), f.with(t, `{"options":["--nodelist=n2"]}`)
	limited := f.with(t, `{"timeLimit":"PT1M","options":["--nodelist=n2"]}`)
	ends := map[berth.TaskID]struct {
		d    driver.Driver
		good func(*berth.Exit) bool
	}{}
	expect := func(d driver.Driver, l berth.Launch, good func(*berth.Exit) bool) berth.Launch {
		ends[l.Task] = struct {
			d    driver.Driver
			good func(*berth.Exit) bool
		}{d, good}
		return l
	}

	f.begin(ctx, t, limited, expect(limited, f.launch(1, sleep), func(e *berth.Exit) bool { return e.Cause == "timeout" }))
	for l, code := range map[*berth.Launch]int{new(f.launch(2, "exit 3")): 3, new(f.launch(3, "true")): 0} {
		if _, err := on2.Start(ctx, expect(on2, *l, func(e *berth.Exit) bool { return e.Code == code })); err != nil {
			t.Fatal(err)
		}
	}
	hungry := expect(on2, f.launch(4, "echo ready; exec python3 -c 'x = bytearray(1 << 30)'"), func(e *berth.Exit) bool {
		return e.OOM || e.Code == 137 || strings.Contains(e.Reason, "137") // of the command, where the runner was left alone
	})
	hungry.Memory = 200 << 20
	if _, err := on2.Start(ctx, hungry); err != nil {
		t.Fatal(err)
	}
	gone := f.launch(5, sleep)
	f.begin(ctx, t, on2, expect(on2, gone, func(e *berth.Exit) bool { return e.Cause == "canceled" && strings.Contains(e.Reason, "canceled there") }))
	command(t, "scancel", numberOf(ctx, t, gone.Task))

	f.begin(ctx, t, on1, expect(on1, f.launch(6, sleep), func(e *berth.Exit) bool { return e.Cause == "evicted" }))
	command(t, "sbatch", "--partition=urgent", "--exclusive", "--nodes=1", "--output=/dev/null", "--wrap=true")
	forgotten(ctx, t, "--nodelist=n1")
	f.begin(ctx, t, on1, expect(on1, f.launch(7, sleep), func(e *berth.Exit) bool { return e.Cause == "lost" && strings.Contains(e.Reason, "failed") }))
	command(t, "scontrol", "update", "nodename=n1", "state=down", "reason=lost")
	forgotten(ctx, t)
	for id, x := range ends {
		if o := drivertest.Wait(ctx, t, x.d, id); !x.good(o.Exit) {
			t.Errorf("task %s: exit %+v", id, o.Exit)
		}
	}
}

// numberOf is the number of the job of a task.
func numberOf(ctx context.Context, t *testing.T, id berth.TaskID) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, "squeue", "--noheader", "--format=%i %k").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if number, about, _ := strings.Cut(strings.TrimSpace(line), " "); about == "berth task "+string(id) {
			return number
		}
	}
	t.Fatalf("no job of task %s in %s", id, out)
	return ""
}

// forgotten waits until the controller knows no jobs, of those that some options of squeue choose.
func forgotten(ctx context.Context, t *testing.T, options ...string) {
	t.Helper()
	for {
		out, err := exec.CommandContext(ctx, "squeue", append(options, "--noheader", "--states=all")...).Output()
		if err == nil && strings.TrimSpace(string(out)) == "" {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%v: %s", err, out)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
