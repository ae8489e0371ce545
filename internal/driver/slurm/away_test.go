package slurm

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// TestServerWasAway: tasks whose jobs ended while the server was away, and ran nothing of them, are
// evicted, so that they start again, and are not given to those who ask for them after that.
// Others end as ever.
func TestServerWasAway(t *testing.T) {
	sbatch(t, 10000)
	tools(t, "scancel")
	dir := t.TempDir()
	d := openArrays(t, dir)
	name, ids := startArray(t, d, 7)
	next(t, d, name, ids, 0)
	if got := next(t, d, name, ids, 0, 0); got != 6 {
		t.Fatalf("the second task of job 0 is %d", got) // and the answer is lost
	}
	next(t, d, name, ids, 1)
	d = openArrays(t, dir)
	d.mu.Lock()
	if err := d.load(); err != nil {
		t.Fatal(err)
	}
	end := func(i int, j job) *berth.Exit {
		r := d.records[ids[i]]
		if err := d.update(r, j); err != nil {
			t.Fatal(err)
		}
		if r.Exit == nil {
			return &berth.Exit{}
		}
		return r.Exit
	}
	away := job{state: "FAILED", code: berth.ExitAway, node: "n1"}
	for i, j := range map[int]job{6: away, 2: away, 3: {state: "TIMEOUT"}, 4: {state: "NODE_FAIL", node: "n1"}} {
		if e := end(i, j); e.Cause != "evicted" || e.Code != -1 || !strings.Contains(e.Reason, "nothing of its task had run") {
			t.Errorf("task %d: %+v", i, e)
		}
	}
	if e := exitOf(d.records[ids[5]], job{}); e.Cause != "evicted" {
		t.Errorf("a job that is forgotten: %+v", e)
	}
	if e := end(1, job{state: "TIMEOUT"}); e.Cause != "timeout" {
		t.Errorf("a task that ran: %+v", e)
	}
	if e := d.records[ids[0]].Exit; !e.OK() {
		t.Errorf("a task that had ended: %+v", e)
	}
	d.records[ids[5]].Stop = &driver.Stop{}
	if e := end(5, away); e.Cause != "canceled" {
		t.Errorf("a task that was stopped: %+v", e)
	}
	d.mu.Unlock()
	for _, runner := range []int{0, 2, 3, 4, 5} {
		if got := next(t, d, name, ids, runner); got != berth.NoTurn {
			t.Errorf("job %d, which asks late, is given %d", runner, got)
		}
	}
	if e := exitOf(&record{Name: "b-abc", Job: "7"}, away); e.Cause != "" || e.Code != berth.ExitAway {
		t.Errorf("a task with a job of its own: %+v", e)
	}
}
