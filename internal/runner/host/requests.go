package host

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// start claims a task, whose launch is l and in JSON raw, and runs it; a task that was claimed
// before is left alone.
func (w *worker) start(l berth.Launch, raw json.RawMessage) error {
	if err := checkID(l.Task); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs[l.Task] != nil {
		return nil
	}
	if err := w.admit(l.Term, l.TermProof); err != nil { // it may have been run and removed
		return err
	}
	if w.ctx.Err() != nil {
		return berth.Errorf(berth.Unavailable, "%w", errEnding)
	}
	if w.homeless() { // nothing can begin here; the next host makes the directory again
		w.tasks.Go(func() { w.vacate(w.ctx) })
		return berth.Errorf(berth.Unavailable, "%w", errEnding)
	}
	j := &job{launch: l, control: new(runner.Control), state: berth.TaskStarting, ticket: w.ticket(&l, false)}
	if j.ticket.waits() {
		j.state = berth.TaskPlaced
	} else {
		j.immediate = runner.Immediate(&l)
	}
	var m runner.Mark
	if j.immediate {
		m.Step, j.running = runner.StepExec, true
	}
	if bytes.IndexByte(raw, '\n') >= 0 {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			w.gate.leave(j.ticket)
			return berth.Errorf(berth.Invalid, "launch: %w", err)
		}
		raw = b.Bytes()
	}
	if err := w.journal.claim(l.Task, raw, m); err != nil {
		w.gate.leave(j.ticket)
		return berth.Errorf(berth.Unavailable, "%w", err)
	}
	w.jobs[l.Task] = j
	w.launch(j, runner.Mark{})
	return nil
}

// list is every task.
func (w *worker) list() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Status, 0, len(w.jobs))
	for id, j := range w.jobs {
		all = append(all, Status{Task: id, State: j.state, Exit: j.exit, PID: j.pid, GPUs: j.launch.GPUs, Reported: j.reported})
	}
	return all
}

// stop asks a task to end.
func (w *worker) stop(r stopRequest) {
	w.mu.Lock()
	j := w.jobs[r.Task]
	w.mu.Unlock()
	if j == nil {
		return
	}
	j.control.Stop(runner.Stop{Grace: r.Grace, Cause: r.Cause, Why: r.Why})
}

// ticket is the place of a task. Replicas of online deployments, which do not end, take none.
func (w *worker) ticket(l *berth.Launch, runs bool) *ticket {
	if l.Serves {
		return w.gate.free()
	}
	return w.gate.enter(runs)
}

// admitted waits in line for the gate. A task that is asked to stop goes on at once, to end without
// having begun. False means that the worker ends.
func (w *worker) admitted(j *job) bool {
	if !j.ticket.waits() {
		return true
	}
	stopped := make(chan struct{})
	var once sync.Once
	j.control.OnStop(func() { once.Do(func() { close(stopped) }) })
	defer j.control.OnStop(nil)
	select {
	case <-j.ticket.pass:
	case <-stopped:
	case <-w.ctx.Done():
		return false
	}
	return true
}

// remove forgets tasks that are over, and says which are not.
func (w *worker) remove(r removeRequest) (removeAnswer, error) {
	ids := r.Tasks
	failed := removeAnswer{}
	over := make(map[berth.TaskID]*job, len(ids))
	w.mu.Lock()
	if err := w.admit(r.Term, r.TermProof); err != nil { // from here on no earlier server can start them again
		w.mu.Unlock()
		return nil, err
	}
	for _, id := range ids {
		j := w.jobs[id]
		switch {
		case j == nil:
		case j.state != berth.TaskDone:
			failed[id] = failureOf(berth.Errorf(berth.Conflict, "task %s is not over: stop it first", id))
		default:
			over[id] = j
		}
	}
	if err := w.journal.remove(slices.Collect(maps.Keys(over))); err != nil {
		for id := range over {
			failed[id] = failureOf(berth.Errorf(berth.Unavailable, "%w", err))
		}
		w.mu.Unlock()
		return failed, nil
	}
	for id := range over {
		delete(w.jobs, id)
	}
	w.mu.Unlock()
	for id, j := range over {
		dir := filepath.Join(w.dir, "tasks", string(id))
		_ = syscall.Unlink(dir + runner.SentSuffix) // most tasks have none
		w.dirs.give(dir, j.clean)
		w.logs.give(j.launch.LogFile, j.clean)
	}
	return failed, nil
}
