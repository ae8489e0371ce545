package control

import (
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
)

// cycle is one pass over some jobs and pools: what a transaction decided, to be acted on once it is
// durable.
type cycle struct {
	c   *Control
	tx  *store.Tx
	now time.Time
	at  jobKey // the job that is worked on now, if any

	jobs          map[jobKey]*jobWork
	workspaces    map[string]workspaceStorage // workspaces that were read
	pools         map[poolKey]bool            // where something is to be decided
	newGangs      map[poolKey][]string        // gangs that have no reason yet
	nodes         map[string]nodeChange       // nodes to save
	starts        []taskStart
	stops         []taskStop
	ended         []*placement
	addNodes      []berth.Node
	removeNodes   []berth.Node
	nodeMoves     [][2]berth.NodeState // from, to
	discards      []string             // directories nobody needs any more
	lostTasks     []lostTask
	forgetTargets []poolKey        // computes whose targets nobody needs any more
	returned      []*driver.Target // were away
	catalogue     *catalogue       // quotas and sizes, read once
	foreignRead   bool             // the nodes that others made were read
	parents       []jobKey         // pipelines whose steps changed
	logs          []logWrite

	portsTaken map[int]bool // spans of reserved ports, by the first
	portsAsked []int        // spans to reserve, by the ports needed
	anew       bool         // the picture was made anew from the store
}

type taskStart struct {
	task   berth.Task
	launch berth.Launch
}

type taskStop struct {
	task berth.TaskID
	driver.Stop
}

// changes is what events said has changed.
type changes struct {
	jobs  map[jobKey]bool
	pools map[poolKey]bool            // to be read again and decided upon
	nodes map[poolKey]map[string]bool // nodes to be read again; their pools to be decided upon
	due   []poolKey                   // to be decided upon
	// budgets are workspaces whose budgets are to be read again; their pools to be decided upon.
	budgets map[string]bool
	limits  bool // those of users are to be read again
	clock   bool // it was set
}

// runUntilCommitted makes the next step of each touched job and pool in one transaction, then acts.
// The transaction changes the loop's picture of the world as it goes; when it has to be run again,
// that picture is first made anew from the store.
func (c *Control) runUntilCommitted(ctx context.Context, ch changes) {
	begin := time.Now()
	defer func() { c.cycles.Observe(time.Since(begin)) }()
	var cy *cycle
	c.ports.fill()
	backoff := 50 * time.Millisecond
	for {
		var faulty bool
		var err error
		if cy, faulty, err = c.runCycle(ctx, ch); err == nil {
			c.stale = false
			break
		}
		if ctx.Err() != nil {
			return
		}
		if faulty {
			ch.jobs[cy.at] = true // so that it ends
			continue
		}
		c.o.Log.Error("jobs could not be advanced; trying again", "jobs", len(ch.jobs), "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
			backoff = min(2*backoff, 5*time.Second)
		}
	}
	c.act(ctx, cy)
}

// newCycle begins a cycle over a picture of the world that is what the store says.
func (c *Control) newCycle(tx *store.Tx) (*cycle, error) {
	anew := c.stale
	if d := tx.Shifted() - c.shifted; d != 0 {
		c.shiftMemory(d)
		c.shifted, anew = c.shifted+d, true
	}
	if anew {
		if err := c.readAll(tx); err != nil {
			return nil, err
		}
	}
	c.stale = true // until this is durable
	for _, p := range c.pools {
		p.before = p.memory
	}
	return &cycle{
		c: c, tx: tx, now: tx.Now(), jobs: map[jobKey]*jobWork{}, pools: map[poolKey]bool{}, newGangs: map[poolKey][]string{},
		nodes: map[string]nodeChange{}, anew: anew,
	}, nil
}

// act does what a cycle decided.
func (c *Control) act(ctx context.Context, cy *cycle) {
	for _, p := range cy.ended {
		c.countEnd(p.task.Compute, cy.now)
		delete(c.placed, p.task.ID)
		p.over.Store(true)
		select {
		case <-p.started:
		default:
			c.unanswered[p.task.ID] = p
		}
		c.removeTask(ctx, p)
	}
	for _, s := range cy.nodeMoves {
		c.o.Moved(s[0], s[1])
	}
	c.writeLogs(cy)
	for k, j := range cy.jobs {
		if f := c.faults[k]; f != nil && !f.ignored && (!f.ends || berth.JobStatus(j.doc.Status).Terminal()) {
			delete(c.faults, k)
		}
		if j.pipeline && berth.JobStatus(j.doc.Status).Terminal() {
			delete(c.logged, k)
		}
	}
	for _, s := range cy.starts {
		c.startTask(ctx, s)
	}
	c.settlePorts(cy)
	for _, s := range cy.stops {
		if p := c.placed[s.task]; p != nil {
			c.stopTask(ctx, p, s.Stop)
		}
	}
	for _, n := range cy.addNodes {
		c.addNode(ctx, n)
	}
	for _, n := range cy.removeNodes {
		c.removeNode(ctx, n)
	}
	c.observeReturned(ctx, cy.returned)
	c.endLostTasks(ctx, cy.lostTasks)
	for _, k := range cy.forgetTargets {
		if err := c.o.Targets.Forget(k.workspace, k.compute); err != nil {
			c.o.Log.Warn("target not let go", "compute", k.compute, "err", err)
		}
	}
	for _, dir := range cy.discards {
		c.acts.Go(func() { c.discard(dir) })
	}
}

// discard deletes what the attempts at a job handed on to each other.
func (c *Control) discard(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		c.o.Log.Warn("kept outputs not deleted", "dir", dir, "err", err)
	}
}

func (cy *cycle) run(ch changes) error {
	for k := range ch.pools {
		if err := cy.refresh(k); err != nil {
			return err
		}
	}
	for k, names := range ch.nodes {
		if err := cy.refreshNodes(k, names); err != nil {
			return err
		}
	}
	if ch.limits {
		if err := cy.c.readLimits(cy.tx); err != nil {
			return err
		}
	}
	for workspace := range ch.budgets {
		if err := cy.c.readExhausted(cy.tx, workspace); err != nil {
			return err
		}
	}
	for k := range cy.c.pools {
		if ch.budgets[k.workspace] {
			cy.pools[k] = true
		}
	}
	for _, k := range ch.due {
		cy.pools[k] = true
	}
	if cy.anew { // when to look at each is not known any more
		for k := range cy.c.pools {
			cy.pools[k] = true
		}
	}
	var jobs []*jobWork
	for k := range ch.jobs {
		cy.at = k
		j, err := cy.job(k)
		if err != nil {
			return err
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	// In the order they were submitted, which is the order they should run in.
	slices.SortFunc(jobs, func(a, b *jobWork) int { return cmp.Compare(a.doc.ID, b.doc.ID) })
	for _, j := range jobs {
		cy.at = j.key()
		if err := cy.step(j); err != nil {
			return err
		}
	}
	cy.at = jobKey{}
	waited := cy.c.reserved(nil)
	// the machine itself last: a node may need it for itself
	for _, local := range []bool{false, true} {
		for k := range cy.pools {
			if (k.workspace == "") != local {
				continue
			}
			if err := cy.decide(k); err != nil {
				return err
			}
		}
	}
	// one pool needs the machine for itself, or does not any more: that concerns all
	if cy.c.reserved(nil) != waited {
		for k := range cy.c.pools {
			if err := cy.decide(k); err != nil {
				return err
			}
		}
	}
	for _, j := range cy.jobs {
		if j.pipeline {
			continue // after their steps
		}
		cy.at = j.key()
		if err := cy.save(j); err != nil {
			return err
		}
	}
	cy.at = jobKey{}
	if err := cy.stepParents(); err != nil {
		return err
	}
	return cy.saveNodes()
}

// decide sizes a pool and places what can be placed. What was placed may have left others short of
// nodes that seemed enough, so it looks again until nothing more is placed.
func (cy *cycle) decide(k poolKey) error {
	for {
		p := cy.c.pools[k]
		if p == nil {
			return nil
		}
		if err := cy.resize(p); err != nil {
			return err
		}
		before := len(cy.starts)
		for again := true; again; {
			var err error
			if again, err = cy.place(p); err != nil {
				return err
			}
		}
		if p.single() || p.queue.Len() == 0 || len(cy.starts) == before {
			return nil
		}
	}
}
