package control

import (
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/overlay"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
)

// state is the loop's picture of the world: what the store says of pools, gangs and tasks, and what
// only the loop knows of them. A cycle works on a fork of it, which costs no more than what the
// cycle changes; when its transaction is durable, apply makes the state what the fork has become,
// and when it is not the fork is dropped. Nothing else changes the state.
type state struct {
	fork      bool // it is a cycle's
	pools     overlay.Map[poolKey, *pool]
	gangs     overlay.Map[string, *gang]          // what waits, by the id of its first task
	exhausted overlay.Map[string, []berth.Budget] // budgets that are used up, by workspace
	placed    map[berth.TaskID]*placement         // no cycle changes it
	personal  quota.Limits                        // the limits of single users
	// lastNodeID is the last node that was looked for among those that others write.
	lastNodeID int64
	shifted    time.Duration // how far the clock had been set when the state was read
	problems   []problem     // what could not be read, to be logged
}

// placement is a task that was given to a target and has not ended.
type placement struct {
	task      berth.Task
	handle    atomic.Pointer[driver.Handle] // nil until the driver said it
	started   chan struct{}                 // closed when Start has answered for good
	over      atomic.Bool                   // it has ended: it is not started any more
	inherited bool                          // placed by an earlier process: it has to be taken up
	missing   int                           // how many observations in a row did not list it
	queued    string                        // why it waits in a queue of the target's own, as it last said
}

// gang is the tasks of an attempt at a job that waits.
type gang struct {
	job   jobKey
	pool  poolKey
	tasks []berth.TaskID // by rank
	why   string         // what its tasks say they wait for, "" when they do not say the same
}

// problem is something that could not be read and was left alone.
type problem struct {
	message   string
	what, who string
	err       error
}

// newFork is the state as it is now, for a cycle to change.
func (s *state) newFork() *state {
	f := *s
	f.fork = true
	f.pools, f.gangs, f.exhausted = s.pools.Fork(), s.gangs.Fork(), s.exhausted.Fork()
	return &f
}

// join makes the state what a fork of it has become.
func (s *state) join(f *state) {
	for _, p := range f.pools.Changed() {
		p.join()
	}
	s.pools.Join(&f.pools)
	s.gangs.Join(&f.gangs)
	s.exhausted.Join(&f.exhausted)
	s.personal, s.lastNodeID, s.problems = f.personal, f.lastNodeID, nil
}

// apply makes the state what a cycle made of it whose transaction is durable.
func (c *Control) apply(cy *cycle) {
	if d := cy.base.shifted - c.state.shifted; d != 0 {
		c.shiftTimes(d)
	}
	c.state = cy.base // another one when it was read again
	c.state.join(cy.state)
	for _, p := range cy.plan.ended {
		delete(c.state.placed, p.task.ID)
	}
	for _, s := range cy.plan.starts {
		c.state.placed[s.task.ID] = &placement{task: s.task, started: make(chan struct{})}
	}
	for k, j := range cy.jobs {
		over := berth.JobStatus(j.doc.Status).Terminal()
		if f := c.faults[k]; f != nil && !f.ignored && (!f.ends || over) {
			delete(c.faults, k)
		}
		if !over {
			c.jobCache.put(k, j.jobView)
			continue
		}
		delete(c.jobCache, k)
		delete(c.logged, k)
	}
}

// pool is the pool of a key, to be read; nil when there is none.
func (s *state) pool(k poolKey) *pool {
	p, _ := s.pools.Get(k)
	return p
}

// ownPool is the pool of a key, to be changed; nil when there is none.
func (s *state) ownPool(k poolKey) *pool {
	p, ok := s.pools.Get(k)
	if ok && s.fork && !s.pools.Own(k) {
		p = p.newFork()
		s.pools.Set(k, p)
	}
	return p
}

// poolOf is the pool of a task, to be changed. A task whose compute is gone waits in a pool that
// has nothing.
func (s *state) poolOf(t *berth.Task) *pool {
	k := keyOf(t.Workspace, t.Compute)
	p := s.ownPool(k)
	if p == nil {
		p = newPool(k, t.Compute)
		p.state.State = berth.ComputeDeleting
		s.pools.Set(k, p)
	}
	return p
}

// ownGang is the gang of an id, to be changed; nil when there is none.
func (s *state) ownGang(id string) *gang {
	g, ok := s.gangs.Get(id)
	if ok && s.fork && !s.gangs.Own(id) {
		c := *g
		c.tasks = c.tasks[:len(c.tasks):len(c.tasks)]
		g = &c
		s.gangs.Set(id, g)
	}
	return g
}

// enqueue puts a waiting task into its pool's queue, with the others of its attempt.
func (s *state) enqueue(p *pool, t *berth.Task) {
	id := t.Gang()
	g := s.ownGang(id)
	if g == nil {
		g = &gang{job: jobKey{t.Workspace, t.Job}, pool: p.key, why: t.Why}
		s.gangs.Set(id, g)
	}
	if t.Why != g.why {
		g.why = ""
	}
	g.tasks = append(g.tasks, t.ID)
	if len(g.tasks) < max(1, t.Count) {
		return
	}
	q := sched.GangOf(t)
	if p.single() && !p.several() {
		q.Nodes = 1 // to Berth: the target finds the others
	}
	p.queue.Add(q)
}

// dequeue takes a gang out of its queue.
func (s *state) dequeue(id string) {
	if g, ok := s.gangs.Get(id); ok {
		if p := s.ownPool(g.pool); p != nil {
			p.queue.Remove(id)
		}
		s.gangs.Delete(id)
	}
}
