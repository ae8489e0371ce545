package control

import (
	"context"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
)

// grace is how long a task may take to end after it was asked to; then it is killed.
const grace = 10 * time.Second

// launchAgain is what a task was given that an earlier process had placed. A panic is the task's
// own.
func (c *Control) launchAgain(ctx context.Context, t *berth.Task) (launch berth.Launch, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = berth.Errorf(berth.Internal, "an internal error of this server: %v", v)
		}
	}()
	err = c.o.DB.Update(ctx, func(tx *store.Tx) (err error) {
		if c.probe != nil {
			defer c.probe(t.ID, &err)()
		}
		cy := &cycle{c: c, tx: tx, now: tx.Now(), state: c.state.newFork(), jobs: map[jobKey]*jobWork{}}
		j, err := cy.job(jobKey{t.Workspace, t.Job})
		if err != nil {
			return err
		}
		if j == nil {
			return berth.Errorf(berth.NotFound, "the job was deleted")
		}
		launch, err = cy.relaunch(j, *t)
		return err
	})
	return launch, err
}

// stopTask asks a running task to end, once it has been started.
func (c *Control) stopTask(ctx context.Context, p *placement, s driver.Stop) {
	if s.Grace == 0 {
		s.Grace = grace
	}
	target := c.target(c.state, &p.task)
	c.acts.Go(func() {
		for wait := stopPause; wait < 256*stopPause; wait *= 2 {
			h, ok, err := p.find(ctx, target)
			if ok {
				err = target.Driver.Stop(ctx, h, s)
			}
			if err == nil || ctx.Err() != nil {
				return
			}
			c.o.Log.Warn("task not stopped yet", "task", p.task.ID, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

// stopPause is how soon a target that does not answer is asked again to stop a task, the first
// time.
const stopPause = 200 * time.Millisecond

// removeEnded lets the driver forget a task that has ended. For its target, a gang that was started
// as a whole is over when its last task is: until then its tasks stay, and none of them is stopped
// for that.
func (c *Control) removeEnded(ctx context.Context, p *placement) {
	all := []*placement{p}
	if c.ganged(&p.task) {
		id := p.task.Gang()
		all = append(c.endedOfGangs[id], p)
		for _, other := range c.state.placed {
			if other.task.Gang() == id {
				c.endedOfGangs[id] = all
				return
			}
		}
		delete(c.endedOfGangs, id)
	}
	target := c.target(c.state, &p.task)
	c.acts.Go(func() {
		for _, p := range all {
			c.removeTask(ctx, target, p)
		}
	})
}

// removeTask removes a task from its target, and stops it if it is not over.
func (c *Control) removeTask(ctx context.Context, target Target, p *placement) {
	h, ok, _ := p.find(ctx, target)
	if !ok {
		return
	}
	err := target.Driver.Remove(ctx, h)
	// Whatever it reported, it runs. That is so for a moment at the end of every task; later it is
	// ended.
	for wait := removePause; berth.CodeOf(err) == berth.Conflict && wait < 16*removePause; wait *= 2 {
		if wait == 4*removePause {
			c.o.Log.Warn("stopping a task that was reported to have ended", "task", p.task.ID)
			if err := target.Driver.Stop(ctx, h, driver.Stop{Grace: grace, Cause: "canceled", Why: "it was reported to have ended"}); err != nil && ctx.Err() == nil {
				c.o.Log.Warn("task not stopped", "task", p.task.ID, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err = target.Driver.Remove(ctx, h)
	}
	if err != nil && ctx.Err() == nil {
		c.o.Log.Debug("task not removed; a later sweep does it", "task", p.task.ID, "err", err)
	}
}

// removePause is how long a task that has just reported its end may take to be over.
const removePause = time.Second

// find waits until Start has answered and returns the task's handle. A process that did not start
// the task asks the target.
func (p *placement) find(ctx context.Context, t Target) (h driver.Handle, ok bool, err error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return "", false, ctx.Err()
	}
	if h := p.handle.Load(); h != nil {
		return *h, true, nil
	}
	seen, err := t.Driver.Observe(ctx)
	for _, o := range seen {
		if o.Task == p.task.ID {
			p.handle.Store(&o.Handle)
			return o.Handle, true, nil
		}
	}
	return "", false, err
}

// endTask records an end that the runner cannot report.
func (c *Control) endTask(ctx context.Context, id berth.TaskID, e *berth.Exit) {
	err := c.o.DB.Update(ctx, func(tx *store.Tx) error {
		t, err := tx.Task(id)
		if err != nil {
			return err
		}
		if t.State == berth.TaskDone {
			return nil
		}
		return recordEnd(tx, t, e)
	})
	if err != nil && ctx.Err() == nil {
		c.o.Log.Error("end of task not recorded", "task", id, "err", err)
	}
}
