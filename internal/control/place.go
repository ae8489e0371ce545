package control

import (
	"errors"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/sched"
)

// place asks the scheduler about a pool and does what it says. It reports whether to ask again: a
// gang that could not be launched has left its nodes to the next.
func (cy *cycle) place(p *pool) (again bool, err error) {
	fresh := cy.newGangs[p.key]
	delete(cy.newGangs, p.key)
	if p.queue.Len() == 0 {
		return false, nil
	}
	v, err := cy.picture(p)
	if err != nil {
		return false, err
	}
	if p.local {
		if v.Occupied, err = cy.localDown(); err != nil {
			return false, err
		}
	}
	if p.target.Info.Queues {
		v.Overcommit = cy.c.endRates[p.name].overcommit(cy.now.Add(-cy.jumped))
	}
	for _, choice := range cy.schedule(p, v.Sched(), fresh) {
		left, err := cy.placeGang(p, choice)
		if err != nil {
			return false, err
		}
		again = again || left
	}
	cy.at = jobKey{}
	return again, nil
}

// placeGang does what the scheduler chose for a gang. It reports whether the gang has left the
// nodes that were meant for it to others.
func (cy *cycle) placeGang(p *pool, choice sched.Choice) (left bool, err error) {
	g, _ := cy.state.gangs.Get(choice.Gang)
	if len(choice.Nodes) == 0 && len(choice.Preempt) == 0 && choice.Why == g.why {
		return false, nil // it says so already, and nobody deletes a job that waits
	}
	cy.at = g.job
	j, err := cy.job(g.job)
	if err != nil {
		return false, err
	}
	if j == nil { // deleted while it waited
		cy.state.dequeue(choice.Gang)
		return true, nil
	}
	if j.fault != "" {
		return false, nil // it ends, see step
	}
	if g.why != choice.Why {
		g = cy.state.ownGang(choice.Gang)
		g.why = choice.Why
	}
	tasks := make([]*berth.Task, len(g.tasks))
	for i, id := range g.tasks {
		t := j.task(id)
		tasks[i] = t
		if t.Why != choice.Why {
			t.Why = choice.Why
			j.updates[id] = true
		}
	}
	for _, id := range choice.Preempt {
		if err := cy.preempt(p, id, "stopped for job "+g.job.name+", which goes first"); err != nil {
			return false, err
		}
	}
	if len(choice.Nodes) == 0 {
		return false, nil
	}
	cy.state.dequeue(choice.Gang)
	if p.several() && len(choice.Nodes) != len(tasks) { // it was one machine when the gang came
		cy.requeue(p, j, tasks, "its compute has changed", cy.now)
		return true, nil
	}
	ok, err := cy.launchGang(p, j, tasks, choice.Nodes)
	return !ok, err
}

// launchGang puts tasks on nodes. A job that cannot be launched ends here: ok is false.
func (cy *cycle) launchGang(p *pool, j *jobWork, tasks []*berth.Task, nodes []string) (ok bool, err error) {
	launches, err := cy.buildLaunches(p, j, tasks, nodes)
	switch {
	case errors.Is(err, errPortsAsked):
		cy.requeue(p, j, tasks, err.Error(), cy.now)
		return true, nil
	case errors.Is(err, errNoPorts):
		cy.requeue(p, j, tasks, err.Error(), cy.now.Add(portPause))
		return true, nil
	}
	if err != nil {
		if berth.CodeOf(err) == berth.Unavailable {
			return false, err
		}
		for _, t := range tasks {
			cy.endTask(t, &berth.Exit{Code: -1, Cause: "staging", Reason: err.Error()})
			j.updates[t.ID] = true
		}
		return false, nil
	}
	for i, t := range tasks {
		t.State, t.Times.Placed = berth.TaskPlaced, cy.now
		j.updates[t.ID] = true
		p.occupy(t)
		cy.markBusy(p, t.Node)
		cy.plan.starts = append(cy.plan.starts, taskStart{task: *t, launch: launches[i]})
	}
	return true, nil
}

// requeue lets a gang wait on that was chosen and cannot start now for a reason that passes. It is
// looked at again at a time.
func (cy *cycle) requeue(p *pool, j *jobWork, tasks []*berth.Task, why string, at time.Time) {
	for _, t := range tasks {
		t.Node, t.Why = "", why
		j.updates[t.ID] = true
		cy.state.enqueue(p, t)
	}
	p.wakeBy(at)
}

// preempt stops a gang so that its job starts again later.
func (cy *cycle) preempt(p *pool, id, why string) error {
	for _, pl := range cy.state.placed {
		if keyOf(pl.task.Workspace, pl.task.Compute) == p.key && pl.task.Gang() == id {
			if err := cy.evictTask(&pl.task, why); err != nil {
				return err
			}
		}
	}
	return nil
}

// evictTask takes a task's node away from it.
func (cy *cycle) evictTask(t *berth.Task, why string) error {
	j, err := cy.job(jobKey{t.Workspace, t.Job})
	if err != nil || j == nil {
		return err
	}
	own := j.task(t.ID)
	if own == nil || own.State == berth.TaskDone || own.Evict || own.Stop {
		return nil
	}
	own.Evict, own.Why = true, why
	j.updates[t.ID] = true
	cy.state.poolOf(t).stopping(t.Gang())
	cy.plan.stops = append(cy.plan.stops, taskStop{t.ID, driver.Stop{Grace: grace, Cause: "evicted", Why: why}})
	return nil
}
