package slurm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/drivertest"
)

// tools puts programs of these names on the PATH that note what they were called with, and a squeue
// that lists nothing.
func tools(t *testing.T, names ...string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{"squeue": "#!/bin/sh\n"}
	for _, name := range names {
		texts[name] = "#!/bin/sh\necho " + name + " \"$@\" >> " + dir + "/calls\n"
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		b, _ := os.ReadFile(filepath.Join(dir, "calls")) // none before the first call
		return string(b)
	}
}

// startArray starts n tasks as one array, and returns its name.
func startArray(t *testing.T, d *Driver, n int) (name string, id []berth.TaskID) {
	t.Helper()
	startTogether(t, d, n)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.arrays {
		return a.Name, a.Tasks
	}
	t.Fatal("there is no array")
	return "", nil
}

// next asks for the next task of a job.
func next(t *testing.T, d *Driver, name string, ids []berth.TaskID, job int, ended ...int) int {
	t.Helper()
	ask := berth.Turn{Array: name, Runner: job}
	if len(ended) > 0 {
		ask.Ended = &ended[0]
	}
	answer, err := d.Turn(t.Context(), ids[job], ask)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Task
}

// TestTurnLaws: the driver does what every [driver.Turner] does.
func TestTurnLaws(t *testing.T) {
	drivertest.Turns(t, func(t *testing.T, n int) drivertest.Array {
		sbatch(t, 10000)
		tools(t, "scancel", "scontrol")
		dir := t.TempDir()
		d := openArrays(t, dir)
		a := drivertest.Array{Driver: d, Reopen: func(t *testing.T) driver.Driver { return openArrays(t, dir) }}
		a.Name, a.Tasks = startArray(t, d, n)
		for _, id := range a.Tasks {
			a.Handles = append(a.Handles, handle(id))
		}
		return a
	})
}

// TestTurns: a job runs its own task and then those whose jobs have not begun, each task is given
// once, the next server knows all that, and the jobs that are not needed are canceled.
func TestTurns(t *testing.T) {
	sbatch(t, 10000)
	canceled := tools(t, "scancel")
	dir := t.TempDir()
	d := openArrays(t, dir)
	name, ids := startArray(t, d, 6)
	if got := next(t, d, name, ids, 0); got != 0 {
		t.Fatalf("the first task of job 0 is %d", got)
	}
	if got := next(t, d, name, ids, 0); got != 0 { // it did not hear the answer
		t.Errorf("asked again, it is %d", got)
	}
	if got := next(t, d, name, ids, 0, 0); got != 5 {
		t.Errorf("the next is %d", got)
	}
	if got := next(t, d, name, ids, 0, 5); got != 4 {
		t.Errorf("the next but one is %d", got)
	}
	r := d.records[ids[5]]
	if !d.records[ids[0]].Exit.OK() || !r.Exit.OK() || r.Job != "1_0" || d.records[ids[4]].Exit != nil || d.records[ids[3]].Job != "1_3" {
		t.Errorf("tasks 0, 5, 4, 3: %+v, %+v, %+v, %+v", d.records[ids[0]], r, d.records[ids[4]], d.records[ids[3]])
	}
	again := openArrays(t, dir)
	if got := next(t, again, name, ids, 5); got != berth.NoTurn { // its own was given away
		t.Errorf("job 5 is given %d", got)
	}
	if got := next(t, again, name, ids, 0); got != 4 {
		t.Errorf("the next server gives job 0 %d", got)
	}
	if !again.records[ids[5]].Exit.OK() || again.records[ids[4]].Job != "1_0" {
		t.Errorf("the next server: tasks 5, 4: %+v, %+v", again.records[ids[5]], again.records[ids[4]])
	}
	if got := []int{next(t, again, name, ids, 1), next(t, again, name, ids, 2), next(t, again, name, ids, 1, 1)}; !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("jobs 1, 2 and 1 again are given %d", got)
	}
	if got := next(t, again, name, ids, 1, 3); got != berth.NoTurn {
		t.Errorf("the last is %d", got)
	}
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(canceled(), "scancel 1_[4-5]\n") {
		if time.Now().After(deadline) {
			t.Fatalf("canceled: %q", canceled())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestTurnsOfStopped: a task that was stopped is not given away, its job gets no other, and nor
// does the job that runs one: the signal might come late.
func TestTurnsOfStopped(t *testing.T) {
	sbatch(t, 10000)
	tools(t, "scancel")
	d := openArrays(t, t.TempDir())
	name, ids := startArray(t, d, 5)
	stop := func(i int) {
		t.Helper()
		if err := d.Stop(t.Context(), handle(ids[i]), driver.Stop{Grace: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	if got := next(t, d, name, ids, 0); got != 0 {
		t.Fatalf("job 0 is given %d", got)
	}
	stop(4)
	if got := next(t, d, name, ids, 0, 0); got != 3 {
		t.Errorf("beside a task that was stopped, job 0 is given %d", got)
	}
	if got := next(t, d, name, ids, 4); got != berth.NoTurn {
		t.Errorf("the job of a task that was stopped is given %d", got)
	}
	stop(3)
	if got := next(t, d, name, ids, 0, 3); got != berth.NoTurn {
		t.Errorf("after its task was stopped, job 0 is given %d", got)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.records[ids[4]]
	if e := exitOf(r, job{number: r.Job, state: "COMPLETED"}); e.Cause != "canceled" {
		t.Errorf("the task that was stopped before it ran: %+v", e)
	}
	r = d.records[ids[2]]
	if e := exitOf(r, job{number: r.Job, state: "COMPLETED"}); e.Cause != "lost" || !strings.Contains(e.Reason, "before it had run") {
		t.Errorf("a task whose job ended without asking: %+v", e)
	}
}

// TestTurnsWithinTheLimit: a job takes further tasks only for a small part of its time limit.
func TestTurnsWithinTheLimit(t *testing.T) {
	sbatch(t, 10000)
	tools(t, "scancel")
	d := openArrays(t, t.TempDir())
	name, ids := startArray(t, d, 3)
	d.longest.Store(int64(time.Minute))
	if got := d.turnTime(); got != time.Minute/turnShare {
		t.Errorf("within a minute, jobs take tasks for %v", got)
	}
	next(t, d, name, ids, 0)
	d.arrays[name].turns.began[0] = time.Now().Add(-time.Minute / turnShare)
	if got := next(t, d, name, ids, 0, 0); got != berth.NoTurn {
		t.Errorf("after that time it is given %d", got)
	}
	for text, want := range map[string]time.Duration{"infinite": 0, "30:00": 30 * time.Minute, "1-02:00:00": 26 * time.Hour, "2:00:05": 2*time.Hour + 5*time.Second} {
		if got := limitOf(text); got != want {
			t.Errorf("%s is %v", text, got)
		}
	}
}

// TestTurnNotWritten: what a killed server did not write whole was not heard by anybody, and the
// next one writes on from there.
func TestTurnNotWritten(t *testing.T) {
	sbatch(t, 10000)
	tools(t, "scancel")
	dir := t.TempDir()
	d := openArrays(t, dir)
	name, ids := startArray(t, d, 3)
	next(t, d, name, ids, 0)
	path := d.arrays[name].path
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"given":[1`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for i := range 2 {
		d = openArrays(t, dir)
		if got := next(t, d, name, ids, 1); got != 1 {
			t.Errorf("server %d gives job 1 %d", i, got)
		}
	}
	if b, _ := os.ReadFile(path); strings.Count(string(b), "given") != 2 {
		t.Errorf("the file: %s", b)
	}
}
