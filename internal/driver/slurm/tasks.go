package slurm

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

const (
	// listingAge is how long an answer of squeue is good for at least: whoever runs a cluster does
	// not like to be asked all the time. A long one, which costs the controller more, is good for
	// listingPerJob of each job, at most mostListingAge.
	listingAge     = 250 * time.Millisecond
	listingPerJob  = time.Millisecond
	mostListingAge = 2 * time.Second
	// missingTime is how long a job may be missing in Slurm's listing before it counts as lost.
	missingTime = 5 * time.Second
	// accountsTime is how long the accounts may take to know of a job that is missing.
	accountsTime = time.Minute
	// askEvery is how often a task is asked to stop: a signal that comes before the script has
	// begun is lost.
	askEvery = 2 * time.Second
	// unansweredTime is how long a job may take to appear that was submitted without an answer: a
	// busy controller carries out what it was asked for even when nobody waits any longer.
	unansweredTime = time.Minute
	// abandonedAfter is after how long a record is removed whose task was never taken.
	abandonedAfter = 24 * time.Hour
	// hardAfter is how long a task may take that was ended at once. Then Slurm ends its job.
	hardAfter = 10 * time.Second
)

// listing is Slurm's list of jobs.
type listing struct {
	fetching sync.Mutex
	at       time.Time // when it was asked for
	jobs     []job
}

// Start is [driver.Driver.Start].
func (d *Driver) Start(ctx context.Context, l berth.Launch) (driver.Handle, error) {
	fresh := &record{Task: l.Task, Grace: l.Grace, unsaved: true}
	return handle(l.Task), d.start(ctx, fresh, func(ctx context.Context, r *record) (string, error) { return d.gather(ctx, r, l) })
}

// start submits a job, unless there is a record of it. fresh is what is recorded, and submit
// returns the number of the job.
func (d *Driver) start(ctx context.Context, fresh *record, submit func(context.Context, *record) (string, error)) error {
	if err := d.dir.Admit(ctx); err != nil {
		return err
	}
	release, err := d.dir.Hold(ctx, driver.Key(string(fresh.Task)))
	if err != nil {
		return err
	}
	defer release()
	r, known, err := d.claim(ctx, fresh)
	if err != nil || r == nil {
		return err
	}
	number, err := "", error(nil)
	if known { // an earlier attempt may have come through
		number, err = d.numberOf(ctx, r)
	}
	if left := unansweredTime - time.Since(r.Tried); err == nil && number == "" && known && left > 0 {
		err = berth.Errorf(berth.Unavailable, "Slurm did not answer when the task was submitted; it is submitted again in %v unless it appears", left.Round(time.Second))
	}
	if err == nil && number == "" {
		number, err = submit(ctx, r)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	close(r.busy)
	r.busy = nil
	if err == nil {
		r.Job, r.submitted = number, time.Now()
		if a := r.array; a != nil {
			if err := a.found(number); err != nil {
				return err
			}
			r.Job = a.jobOf(r.Index)
			return nil // the array's file has it
		}
		return d.save(r)
	}
	if _, refused := errors.AsType[*commandError](err); refused || berth.CodeOf(err) != berth.Unavailable {
		d.forget(r) // Slurm has said that it does not have it
		os.Remove(d.recordPath(r))
		d.leave(r)
		return err
	}
	if !known || time.Since(r.Tried) >= unansweredTime {
		r.Tried = time.Now()
		err = errors.Join(err, d.save(r))
	}
	return err
}

// claim makes the record of a job that is to be submitted, nil when it has been. known says that
// somebody tried before.
func (d *Driver) claim(ctx context.Context, fresh *record) (r *record, known bool, err error) {
	id := fresh.Task
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.load(); err != nil {
		return nil, false, err
	}
	if err := d.settled(ctx, id); err != nil {
		return nil, false, err
	}
	r, known = d.records[id]
	if !known { // another server may have led meanwhile
		if r, err = d.findLate(ctx, id); err != nil {
			return nil, false, err
		}
		known = r != nil
	}
	if known && (r.Job != "" || r.Exit != nil) {
		return nil, true, nil
	}
	if !known {
		r = fresh
		r.Name = driver.Key(d.id, string(id))
		if !r.unsaved {
			if err := d.save(r); err != nil {
				return nil, false, err
			}
		}
		d.keep(r)
	}
	r.busy = make(chan struct{})
	return r, known, nil
}

// findLate is the record of a task that another server may have submitted since the records were
// read, nil when there is none. The mutex is held.
func (d *Driver) findLate(ctx context.Context, id berth.TaskID) (*record, error) {
	r, err := readRecord(filepath.Join(d.c.Dir, "tasks", driver.Key(d.id, string(id))+recordSuffix))
	switch {
	case err == nil:
		d.keep(r)
		return r, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case berth.TermOf(ctx) == 0: // there is one server
		return nil, nil
	}
	err = d.loadArrays()
	return d.records[id], err
}

// settled waits until nobody is submitting a task. The mutex is held, but for the wait.
func (d *Driver) settled(ctx context.Context, id berth.TaskID) error {
	for {
		r := d.records[id]
		if r == nil || r.busy == nil {
			return nil
		}
		busy := r.busy
		d.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
		}
		d.mu.Lock()
		if ctx.Err() != nil {
			return berth.Errorf(berth.Unavailable, "task %s is being submitted: %w", id, context.Cause(ctx))
		}
	}
}

// numberOf is the number of the job of a record, found by its name, empty when there is none.
func (d *Driver) numberOf(ctx context.Context, r *record) (string, error) {
	all, err := d.slurm.jobs(ctx)
	for _, j := range all {
		if j.name == r.jobName() && r.hasIndex(j.number) {
			return j.number, nil
		}
	}
	return "", err
}

// list is what Slurm says of the account's jobs, and when it was asked.
func (d *Driver) list(ctx context.Context) ([]job, time.Time, error) {
	return d.listWithin(ctx, mostListingAge)
}

// listWithin is list, of an age at most.
func (d *Driver) listWithin(ctx context.Context, most time.Duration) ([]job, time.Time, error) {
	l := &d.listing
	l.fetching.Lock()
	defer l.fetching.Unlock()
	if time.Since(l.at) < min(max(listingAge, time.Duration(len(l.jobs))*listingPerJob), most) {
		return l.jobs, l.at, nil
	}
	at := time.Now()
	all, err := d.slurm.jobs(ctx)
	if err != nil {
		return nil, at, err
	}
	l.jobs, l.at = all, at
	return all, at, nil
}

// Observe is [driver.Driver.Observe].
func (d *Driver) Observe(ctx context.Context) ([]driver.Observed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refresh(ctx); err != nil {
		return nil, err
	}
	return d.observed(), nil
}

// refresh brings all records up to date with what Slurm says. The mutex is held, but for the
// questions.
func (d *Driver) refresh(ctx context.Context) error {
	if err := d.dir.Admit(ctx); err != nil {
		return err
	}
	d.mu.Unlock()
	jobs, at, err := d.list(ctx)
	d.mu.Lock()
	if err != nil {
		return err
	}
	byNumber, byName := make(map[string]job, len(jobs)), make(map[string]job, len(jobs))
	for _, j := range jobs {
		byNumber[j.number], byName[nameOf(j)] = j, j
	}
	if err := d.load(); err != nil {
		return err
	}
	for id, r := range maps.Clone(d.records) {
		if r.busy != nil || r.Exit != nil || id != r.Task {
			continue
		}
		j := byNumber[r.Job]
		if r.Job == "" { // the server was killed before it could write the number down
			if j = byName[r.listedName()]; j.number == "" {
				continue
			}
			r.Job = j.number
			if r.array != nil {
				if err := r.array.found(j.number); err != nil {
					return err
				}
			}
		}
		if j.number == "" {
			err = d.missing(ctx, r, at)
		} else {
			err = d.update(r, j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// observed is what is known of all tasks. The mutex is held.
func (d *Driver) observed() []driver.Observed {
	out := []driver.Observed{}
	for id, r := range d.records {
		if r.Job == "" && r.busy == nil || r.Cluster != "" || slices.Contains(r.Removed, id) {
			continue // it was never taken, or is not a task
		}
		o := driver.Observed{Task: id, Handle: handle(id), State: berth.TaskPlaced, Node: r.Node, Exit: r.Exit, Why: r.why}
		switch {
		case r.Exit != nil:
			o.State, o.Why, o.Final = berth.TaskDone, "", len(r.Others) == 0
		case r.state != "":
			o.State = r.state
		}
		out = append(out, o)
	}
	return out
}

// update brings a record up to date with its job. The mutex is held.
func (d *Driver) update(r *record, j job) error {
	r.gone = time.Time{}
	r.state, r.why = stateOf(j)
	if j.node != "" {
		r.Node = j.node
	}
	if r.state == berth.TaskDone {
		r.Exit = exitOf(r, j)
		return d.save(r)
	}
	if r.Stop != nil {
		d.press(r)
	}
	return nil
}

// missing decides about a job that Slurm does not list. The mutex is held, but for the question to
// the accounts.
func (d *Driver) missing(ctx context.Context, r *record, at time.Time) error {
	switch {
	case r.submitted.After(at):
		return nil
	case r.gone.IsZero():
		r.gone = time.Now()
		return nil
	case time.Since(r.gone) < missingTime:
		return nil
	}
	number := r.Job
	d.mu.Unlock()
	j, kept, err := d.slurm.past(ctx, number)
	d.mu.Lock()
	if err != nil || r.Exit != nil || r.Job != number { // it was given to another job meanwhile
		return err
	}
	if s, _ := stateOf(j); j.state != "" && s != berth.TaskDone || j.state == "" && kept && time.Since(r.gone) < accountsTime {
		return nil // the accounts are behind
	}
	r.Exit = exitOf(r, j)
	return d.save(r)
}

// stateOf is the state of a task by its job, and why it waits.
func stateOf(j job) (state berth.TaskState, why string) {
	switch j.state {
	case "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD":
		return berth.TaskPlaced, reason(j.why)
	case "CONFIGURING":
		return berth.TaskStarting, ""
	case "RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING":
		return berth.TaskRunning, ""
	case "COMPLETING", "STAGE_OUT":
		return berth.TaskEnding, ""
	}
	return berth.TaskDone, ""
}

// find is the record of a task that nobody is submitting, nil when there is none. The mutex is
// held, but for the wait.
func (d *Driver) find(ctx context.Context, h driver.Handle) (*record, error) {
	id, err := taskOf(h)
	if err == nil {
		err = d.dir.Admit(ctx)
	}
	if err == nil {
		err = d.load()
	}
	if err == nil {
		err = d.settled(ctx, id)
	}
	return d.records[id], err
}

// Stop is [driver.Driver.Stop].
func (d *Driver) Stop(ctx context.Context, h driver.Handle, s driver.Stop) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.find(ctx, h)
	if err != nil {
		return err
	}
	if r == nil || r.Exit != nil || r.Job == "" {
		return nil
	}
	grace := cmp.Or(s.Grace, r.Grace)
	r.Stop, r.By = &s, time.Now().Add(grace)
	if err := d.save(r); err != nil {
		return err
	}
	number := r.Job
	r.pressed = time.Now()
	d.mu.Unlock()
	err = d.ask(ctx, number)
	d.errands.after(grace, func(context.Context) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if r.Exit == nil {
			r.pressed = time.Time{}
			d.press(r)
		}
	})
	d.mu.Lock()
	return err
}

// ask cancels a job that waits, and asks one that runs to stop.
func (d *Driver) ask(ctx context.Context, number string) error {
	if strings.Contains(number, "_") {
		// cancelWaiting would cancel all jobs of the array that wait.
		jobs, _, err := d.listWithin(ctx, listingAge)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(jobs, func(j job) bool { return j.number == number && j.state == "PENDING" }) {
			return d.slurm.cancel(ctx, number)
		}
	} else if err := d.slurm.cancelWaiting(ctx, number); err != nil {
		return err
	}
	return d.slurm.ask(ctx, number, false)
}

// press asks again a task that was asked to stop, ends it at once when its grace is over, and ends
// its job when that did not help. It does not wait. The mutex is held.
func (d *Driver) press(r *record) {
	if time.Since(r.pressed) < askEvery {
		return
	}
	r.pressed = time.Now()
	number, late := r.Job, time.Since(r.By)
	d.errands.after(0, func(ctx context.Context) {
		var err error
		if late > hardAfter {
			err = d.slurm.cancel(ctx, number)
		} else {
			err = d.slurm.ask(ctx, number, late >= 0)
		}
		if err != nil && ctx.Err() == nil {
			d.log.Warn("a job of Slurm was not asked to stop", "job", r.Name, "err", err)
		}
	})
}

// Remove is [driver.Driver.Remove].
func (d *Driver) Remove(ctx context.Context, h driver.Handle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.find(ctx, h)
	if err != nil || r == nil {
		return err
	}
	if r.Exit == nil && r.Job != "" {
		return berth.Errorf(berth.Conflict, "task %s is not over: stop it first", r.Task)
	}
	id, err := taskOf(h)
	if err != nil {
		return err
	}
	if len(r.Removed) < len(r.Others) { // others of its gang are not removed yet
		if !slices.Contains(r.Removed, id) {
			r.Removed = append(r.Removed, id)
		}
		return d.save(r)
	}
	if slices.Contains(r.Removed, id) {
		return nil
	}
	if err := d.removed(r); err != nil {
		return err
	}
	if err := os.Remove(d.recordPath(r)); err != nil && !os.IsNotExist(err) {
		return err
	}
	d.forget(r)
	return nil
}
