package control

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/berthml/berth/internal/store"
)

// cycle is one pass over the jobs and pools that changed, in one transaction. It writes what
// follows, and plans what has to be done once that is durable.
type cycle struct {
	c   *Control
	tx  *store.Tx
	now time.Time
	at  jobKey // the job that is worked on now, if any: see fault

	base     *state        // what it began with
	state    *state        // a fork of it, which the cycle changes
	reloaded bool          // base was read from the store
	jumped   time.Duration // how far the clock was set since the last cycle

	jobs     map[jobKey]*jobWork   // that were read
	parents  []jobKey              // jobs whose children changed
	pools    map[poolKey]bool      // where something is to be decided
	newGangs map[poolKey][]string  // gangs that have no reason yet, by pool
	nodes    map[string]nodeChange // nodes to write

	// What is read once, and only when it is needed:

	workspaces  map[string]workspaceStorage
	catalogue   *catalogue
	foreignRead bool // the nodes that others write were read

	plan plan
}

// run goes through the phases of a cycle.
func (cy *cycle) run(ch changes) error {
	// 1. Read again what others wrote.
	if err := cy.refresh(ch); err != nil {
		return err
	}
	// 2. Create and stop tasks as the kinds of the jobs say.
	if err := cy.stepJobs(ch.jobs); err != nil {
		return err
	}
	// 3 and 4. Pool by pool: how many nodes should it have, and which gang goes where.
	if err := cy.decidePools(); err != nil {
		return err
	}
	// 5. Write the jobs, then step and write their parents, which follow from them.
	if err := cy.saveJobs(); err != nil {
		return err
	}
	if err := cy.stepParents(); err != nil {
		return err
	}
	// 6. Write the nodes.
	return cy.saveNodes()
}

// refresh reads what others wrote, and notes where that gives something to decide.
func (cy *cycle) refresh(ch changes) error {
	for k := range ch.pools {
		if err := cy.refreshPool(k); err != nil {
			return err
		}
	}
	for k, names := range ch.nodes {
		if err := cy.refreshNodes(k, names); err != nil {
			return err
		}
	}
	if ch.limits {
		if err := cy.c.readLimits(cy.tx, cy.state); err != nil {
			return err
		}
	}
	for workspace := range ch.budgets {
		if err := readExhausted(cy.tx, cy.state, workspace); err != nil {
			return err
		}
	}
	for k := range cy.state.pools.All() {
		if cy.reloaded || ch.budgets[k.workspace] {
			cy.pools[k] = true
		}
	}
	for _, k := range ch.due {
		cy.pools[k] = true
		if p := cy.state.pool(k); p != nil && !p.wake.IsZero() && !p.wake.After(cy.now) {
			cy.state.ownPool(k).wake = time.Time{}
		}
	}
	return nil
}

// stepJobs steps jobs in the order in which they were submitted, which is the order they should run
// in.
func (cy *cycle) stepJobs(keys map[jobKey]bool) error {
	var jobs []*jobWork
	for k := range keys {
		cy.at = k
		j, err := cy.job(k)
		if err != nil {
			return err
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *jobWork) int { return cmp.Compare(a.doc.ID, b.doc.ID) })
	for _, j := range jobs {
		cy.at = j.key()
		if err := cy.step(j); err != nil {
			return err
		}
	}
	cy.at = jobKey{}
	return nil
}

// decidePools decides about each pool that has something to decide, this machine last: a node may
// need it for itself. When a pool begins or ceases to need that, it concerns all others.
func (cy *cycle) decidePools() error {
	waited := cy.reserved(nil)
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
	if cy.reserved(nil) == waited {
		return nil
	}
	for k := range cy.state.pools.All() {
		if err := cy.decide(k); err != nil {
			return err
		}
	}
	return nil
}

// decide sizes a pool and places what can be placed. What was placed may have left others short of
// nodes that seemed enough, so it looks again until nothing more is placed.
func (cy *cycle) decide(k poolKey) error {
	for {
		p := cy.state.ownPool(k)
		if p == nil {
			return nil
		}
		if err := cy.resize(p); err != nil {
			return err
		}
		before := len(cy.plan.starts)
		for again := true; again; {
			var err error
			if again, err = cy.place(p); err != nil {
				return err
			}
		}
		if p.single() || p.queue.Len() == 0 || len(cy.plan.starts) == before {
			return nil
		}
	}
}

// saveJobs writes the jobs that were read, but for parents.
func (cy *cycle) saveJobs() error {
	for _, j := range cy.jobs {
		if j.pipeline {
			continue
		}
		cy.at = j.key()
		if err := cy.save(j); err != nil {
			return err
		}
	}
	cy.at = jobKey{}
	return nil
}

// newCycle begins a cycle on a fork of the state. What the store says is read again where it may be
// something else: at the start, after a commit of which nobody knows whether it was made, and when
// the clock was set, because that changes the times of everything.
func (c *Control) newCycle(tx *store.Tx, reload bool) (cy *cycle, err error) {
	cy = &cycle{
		c: c, tx: tx, now: tx.Now(), base: c.state, jumped: tx.Shifted() - c.state.shifted,
		jobs: map[jobKey]*jobWork{}, pools: map[poolKey]bool{}, newGangs: map[poolKey][]string{}, nodes: map[string]nodeChange{},
	}
	if cy.reloaded = reload || cy.jumped != 0; cy.reloaded {
		if cy.base, err = c.readState(tx, c.state); err != nil {
			return nil, err
		}
	}
	cy.state = cy.base.newFork()
	return cy, nil
}

// runUntilCommitted runs a cycle until its transaction is durable, then acts on what it decided.
func (c *Control) runUntilCommitted(ctx context.Context, ch changes) {
	begin := time.Now()
	defer func() { c.cycles.Observe(time.Since(begin)) }()
	c.ports.fill()
	backoff := 50 * time.Millisecond
	for {
		cy, faulty, err := c.runCycle(ctx, ch)
		if err == nil {
			c.apply(cy)
			c.act(ctx, cy)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if faulty {
			ch.jobs[cy.at] = true // so that it ends
			continue
		}
		ch.reload = true // the commit may have been made, and only its answer lost
		c.o.Log.Error("jobs could not be advanced; trying again", "jobs", len(ch.jobs), "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
			backoff = min(2*backoff, 5*time.Second)
		}
	}
}
