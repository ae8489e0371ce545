package slurm

import (
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// The job of each task of an array has a runner that asks which task it is to run: its own first,
// and once that has ended another whose job has not asked yet. Of many short tasks most are run by
// the first few jobs, and the jobs of the others are canceled, most before Slurm has started them.
// Tasks that take long are each run by their own.
//
// How many jobs of an array may run is in throttle.go, and which are canceled in thin.go.
//
// That a task was given to a job is in the array's file before the job hears of it. A job whose own
// task was given to another gets none, so that it can be canceled at any time. Nor does one that
// was asked to stop, so that a signal which is late cannot meet another task.

const (
	// turnTime is for how long after its first task a job takes others. They share its time limit,
	// so that it is at most the turnShare-th part of that.
	turnTime  = 30 * time.Second
	turnShare = 50
)

// turns is who has which task of an array. Jobs and tasks are known by their index.
type turns struct {
	owner map[int]int       // the job that a task was given to
	task  map[int]int       // the last task that a job was given
	began map[int]time.Time // when a job first asked
	top   int               // all tasks from here on are given, or not to be given

	throttle throttle
	thinned  map[int]bool // jobs that were canceled because their tasks were given to others
	thinning bool         // thin is about to run

	syncing sync.Mutex
	written int // lines that were added to the file
	synced  int // lines that are there for sure; only syncing guards it
}

func newTurns(tasks int) turns {
	return turns{owner: map[int]int{}, task: map[int]int{}, began: map[int]time.Time{}, top: tasks, thinned: map[int]bool{}, throttle: throttle{most: mostAtFirst(tasks)}}
}

// given notes that a job was given a task.
func (t *turns) given(task, job int) { t.owner[task], t.task[job] = job, task }

// jobOf is the number of the job that has a task, empty as long as that of the array is not known.
func (a *array) jobOf(task int) string {
	if a.job == "" {
		return ""
	}
	job, ok := a.turns.owner[task]
	if !ok {
		job = task
	}
	return a.job + "_" + strconv.Itoa(job)
}

// unasked says that the job of a task of an array, which asks before it runs anything, has not come
// to do so.
func (r *record) unasked() bool {
	if r.array == nil || !r.array.Turns {
		return false
	}
	_, given := r.array.turns.owner[r.Index]
	return !given
}

// passed says that the job of a task has gone on to another one.
func (a *array) passed(task int) bool {
	job, ok := a.turns.owner[task]
	return ok && a.turns.task[job] != task
}

// Turn is [driver.Turner.Turn].
func (d *Driver) Turn(ctx context.Context, id berth.TaskID, ask berth.Turn) (berth.TurnAnswer, error) {
	none := berth.TurnAnswer{Task: berth.NoTurn}
	if err := d.dir.Admit(ctx); err != nil {
		return none, err
	}
	d.mu.Lock()
	a, err := d.arrayOf(ctx, ask.Array)
	task := berth.NoTurn
	switch {
	case err != nil || a == nil: // all its tasks are over
	case ask.Runner < 0 || ask.Runner >= len(a.Tasks) || a.Tasks[ask.Runner] != id:
		err = berth.Errorf(berth.Denied, "task %s is not number %d of array %s", id, ask.Runner, ask.Array)
	case a.job == "":
		err = berth.Errorf(berth.Unavailable, "Slurm has not said yet which job array %s is; ask again", ask.Array)
	default:
		task, err = d.nextTurn(a, ask)
	}
	written := 0
	if a != nil {
		written = a.turns.written
	}
	d.mu.Unlock()
	if err == nil && task != berth.NoTurn {
		err = a.sync(written)
	}
	if err != nil {
		return none, err
	}
	return berth.TurnAnswer{Task: task}, nil
}

// arrayOf finds an array by its name, nil when there is none. The mutex is held.
func (d *Driver) arrayOf(ctx context.Context, name string) (*array, error) {
	if err := d.load(); err != nil {
		return nil, err
	}
	if d.arrays[name] == nil && berth.TermOf(ctx) != 0 { // another server may have led meanwhile
		if err := d.loadArrays(); err != nil {
			return nil, err
		}
	}
	return d.arrays[name], nil
}

// nextTurn is the next task of a job, which is noted. The mutex is held.
func (d *Driver) nextTurn(a *array, ask berth.Turn) (int, error) {
	job, t := ask.Runner, &a.turns
	if t.began[job].IsZero() {
		t.began[job] = time.Now()
	}
	d.widenLater(a)
	last, had := t.task[job]
	if had && (ask.Ended == nil || *ask.Ended != last) {
		if r := d.records[a.Tasks[last]]; r == nil || r.array != a || r.Exit != nil {
			return berth.NoTurn, nil // it counts as ended, and may have begun anew
		}
		return last, nil // it has asked before, and did not hear the answer
	}
	if had {
		if r := d.records[a.Tasks[last]]; r != nil && r.array == a && r.Exit == nil {
			r.Exit = &berth.Exit{}
		}
	}
	if owner, given := t.owner[job]; given && owner != job || d.stopped(a, job) || had && time.Since(t.began[job]) > d.turnTime() {
		return berth.NoTurn, nil
	}
	next, later := d.pick(a, job)
	if next == berth.NoTurn && later {
		return next, berth.Errorf(berth.Unavailable, "tasks of array %s are being submitted; ask again", a.Name)
	}
	if next == berth.NoTurn {
		return next, nil
	}
	if err := a.note(entry{Given: []int{next, job}}, false); err != nil {
		return berth.NoTurn, err
	}
	t.given(next, job)
	if had {
		t.throttle.further++
	}
	r := d.records[a.Tasks[next]]
	r.Job, r.submitted, r.gone, r.state, r.why = a.jobOf(next), time.Now(), time.Time{}, berth.TaskRunning, ""
	if next != job {
		d.thinLater(a)
	}
	return next, nil
}

// turnTime is for how long jobs take further tasks.
func (d *Driver) turnTime() time.Duration {
	limit := d.site.limit
	if limit == 0 {
		limit = time.Duration(d.longest.Load())
	}
	if limit == 0 {
		return turnTime
	}
	return min(turnTime, limit/turnShare)
}

// stopped says whether a job may have been asked to stop: its own task was, or the one that it has.
// The mutex is held.
func (d *Driver) stopped(a *array, job int) bool {
	tasks := []int{job}
	if last, had := a.turns.task[job]; had {
		tasks = append(tasks, last)
	}
	return slices.ContainsFunc(tasks, func(task int) bool {
		if owner, given := a.turns.owner[task]; given && owner != job {
			return false
		}
		r := d.records[a.Tasks[task]]
		return r != nil && r.array == a && r.Stop != nil
	})
}

// pick chooses the next task of a job: its own, or the last that can be given. It is later where
// none can be given yet: a job does not take another's task while its own is being submitted. The
// mutex is held.
func (d *Driver) pick(a *array, job int) (task int, later bool) {
	if free, soon := d.free(a, job); free {
		return job, false
	} else if soon {
		return berth.NoTurn, true
	}
	for i := a.turns.top - 1; i >= 0; i-- {
		free, soon := d.free(a, i)
		if free {
			return i, false
		}
		if later = later || soon; !soon && i == a.turns.top-1 {
			a.turns.top = i
		}
	}
	return berth.NoTurn, later
}

// free says whether a task can be given to a job, or may be later. The mutex is held.
func (d *Driver) free(a *array, task int) (free, later bool) {
	if _, given := a.turns.owner[task]; given || a.gone[task] {
		return false, false
	}
	r := d.records[a.Tasks[task]]
	if r == nil || r.array != a || r.Exit != nil || r.Stop != nil {
		return false, false
	}
	return r.busy == nil, true
}

// sync waits until so many lines of the array's file are there for sure. Jobs that ask at the same
// time wait for the same write.
func (a *array) sync(written int) error {
	t := &a.turns
	t.syncing.Lock()
	defer t.syncing.Unlock()
	if t.synced >= written {
		return nil
	}
	f, err := os.OpenFile(a.path, os.O_WRONLY, 0o600)
	if os.IsNotExist(err) {
		return nil // all its tasks were removed
	}
	if err == nil {
		err = f.Sync()
		f.Close() // it was synced
	}
	if err != nil {
		return berth.Errorf(berth.Unavailable, "the record of an array of tasks cannot be kept: %w", err)
	}
	t.synced = written
	return nil
}
