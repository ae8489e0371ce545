package control

import (
	"context"
	"errors"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// startTasks starts what a cycle placed: the tasks of a gang in one call where the target wants
// that, others one by one.
func (c *Control) startTasks(ctx context.Context, all []taskStart) {
	gangs := map[string][]taskStart{}
	for _, s := range all {
		if c.ganged(&s.task) {
			gangs[s.task.Gang()] = append(gangs[s.task.Gang()], s)
		} else {
			c.start(ctx, []taskStart{s})
		}
	}
	for _, g := range gangs {
		c.start(ctx, g)
	}
}

// ganged reports whether a task is started together with the others of its gang.
func (c *Control) ganged(t *berth.Task) bool {
	return t.Count > 1 && c.target(c.state, t).Info.Gangs
}

// start asks the driver to start a task that was placed, or all tasks of a gang, and retries until
// the answer is final.
func (c *Control) start(ctx context.Context, all []taskStart) {
	ps := make([]*placement, len(all))
	for i := range all {
		ps[i] = c.state.placed[all[i].task.ID]
		ps[i].inherited = false
	}
	first := &all[0].task
	target := c.target(c.state, first)
	pool := c.state.pool(keyOf(first.Workspace, first.Compute))
	onNode := pool == nil || !pool.single() && !pool.spec.Instance()
	c.acts.Go(func() {
		defer func() {
			for _, p := range ps {
				close(p.started)
			}
		}()
		began := time.Now()
		for backoff := 100 * time.Millisecond; ; backoff = min(2*backoff, 5*time.Second) {
			hs, err := c.handOver(ctx, target, all)
			if err == nil {
				for i, p := range ps {
					p.handle.Store(&hs[i])
				}
				return
			}
			// a host that was away knew it, and what became of it
			if ctx.Err() != nil || anyOver(ps) || !c.startAgain(ctx, all, onNode, time.Since(began), err) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
			if anyOver(ps) {
				return
			}
		}
	})
}

func anyOver(ps []*placement) bool {
	for _, p := range ps {
		if p.over.Load() {
			return true
		}
	}
	return false
}

// unsentTime is how long a node that cannot be reached is waited for before a task that was not
// sent there goes to another: by then it is known that the node is away, and nothing is placed
// there.
const unsentTime = 5 * time.Second

// sayTime is how long a target may not take a task before the task says why.
const sayTime = 2 * time.Second

// startAgain reports whether tasks are to be started again after an error. It ends those that are
// not.
func (c *Control) startAgain(ctx context.Context, all []taskStart, onNode bool, waited time.Duration, err error) bool {
	exit := &berth.Exit{Code: -1, Cause: "staging", Reason: err.Error()}
	unsent, isUnsent := errors.AsType[*driver.Unsent](err)
	switch code := berth.CodeOf(err); {
	case isUnsent && !all[0].sent && waited >= unsentTime: // another node can have it
		exit.Cause, exit.Reason = "evicted", unsent.Err.Error()
	case code == berth.Unavailable || code == berth.Internal:
		c.o.Log.Warn("task not started yet", "task", all[0].task.ID, "err", err)
		why := make(map[berth.TaskID]string, len(all))
		for i := range all {
			all[i].sent = all[i].sent || !isUnsent
			why[all[i].task.ID] = "it could not be started yet: " + err.Error()
		}
		if waited >= sayTime {
			c.noteWaiting(ctx, why)
		}
		return true
	case code == berth.NotFound && onNode:
		why := ""
		if gone, ok := errors.AsType[*driver.Gone](err); ok {
			why = gone.Why
		}
		c.dropNode(ctx, all[0].task.Workspace, all[0].task.Node, why, false)
		exit.Cause = "evicted" // if the node was dropped before
	}
	for _, s := range all {
		c.endTask(ctx, s.task.ID, exit)
	}
	return false
}

// handOver gives tasks to their target, after creating the folders of their logs.
func (c *Control) handOver(ctx context.Context, target Target, all []taskStart) ([]driver.Handle, error) {
	launches := make([]berth.Launch, len(all))
	for i, s := range all {
		launches[i] = s.launch
		err := c.logs.make(string(s.task.ID))
		if s.launch.Group != nil {
			for _, p := range s.launch.Group.Processes {
				if err == nil {
					err = c.logs.make(processLogID(s.task.ID, p.Rank))
				}
			}
		}
		if err != nil {
			return nil, berth.Errorf(berth.Unavailable, "no place for the log: %w", err)
		}
	}
	if len(all) > 1 {
		return target.Driver.StartGang(ctx, launches)
	}
	h, err := target.Driver.Start(ctx, launches[0])
	return []driver.Handle{h}, err
}

// takeUpInherited takes up the tasks that were placed, and that this process did not start.
func (c *Control) takeUpInherited(ctx context.Context) {
	gangs := map[string][]*placement{}
	for _, p := range c.state.placed {
		switch {
		case !p.inherited:
		case c.ganged(&p.task):
			gangs[p.task.Gang()] = append(gangs[p.task.Gang()], p)
		default:
			c.takeUp(ctx, []*placement{p})
		}
	}
	for _, g := range gangs {
		c.takeUp(ctx, g)
	}
}

// takeUp takes up a task that an earlier process had placed, or the tasks of a gang. Starting is
// idempotent, so asking again can only find them.
func (c *Control) takeUp(ctx context.Context, ps []*placement) {
	missing := c.ganged(&ps[0].task) && len(ps) < ps[0].task.Count // they have ended
	if missing || !unstarted(ps) {
		for _, p := range ps {
			p.inherited = false
			close(p.started)
			c.stopEvicted(ctx, p)
		}
		return // it runs or ran: the next observation says
	}
	all := make([]taskStart, len(ps))
	for _, p := range ps {
		launch, err := c.launchAgain(ctx, &p.task)
		if ctx.Err() != nil {
			return // whoever leads next takes it up
		}
		if berth.CodeOf(err) == berth.Unavailable {
			c.o.Log.Warn("task not taken up yet", "task", p.task.ID, "err", err)
			return // it is tried again when targets are observed
		}
		if err != nil {
			for _, p := range ps {
				p.inherited = false
				close(p.started)
				c.endTask(ctx, p.task.ID, &berth.Exit{Code: -1, Cause: "staging", Reason: err.Error()})
			}
			return
		}
		all[p.task.Rank%len(ps)] = taskStart{task: p.task, launch: launch, sent: true}
	}
	c.start(ctx, all)
	for _, p := range ps {
		c.stopEvicted(ctx, p)
	}
}

// unstarted reports whether nothing is known to have begun of a task, or of a gang, of which all
// tasks are handed over at once.
func unstarted(ps []*placement) bool {
	for _, p := range ps {
		if p.task.State != berth.TaskPlaced {
			return false
		}
	}
	return true
}

// stopEvicted stops a task that an earlier process evicted, and perhaps did not come to stop.
func (c *Control) stopEvicted(ctx context.Context, p *placement) {
	if p.task.Evict {
		c.stopTask(ctx, p, driver.Stop{Cause: "evicted", Why: p.task.Why})
	}
}
