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

// move is one pass over some jobs and pools: what a transaction decided, to be acted on once it is durable.
type move struct {
	c   *Control
	tx  *store.Tx
	now time.Time
	at  jobKey // the job that is worked on now, if any

	jobs   map[jobKey]*jobWork
	places map[string]place      // workspaces that were read
	pools  map[poolKey]bool      // where something is to be decided
	fresh  map[poolKey][]string  // gangs that have no reason yet
	nodes  map[string]nodeChange // nodes to save
	start  []started
	stop   []stopping
	ended  []*placement
	add    []berth.Node
	remove []berth.Node
	moved  [][2]berth.NodeState // from, to
	over   []string             // directories nobody needs any more
	lost   []lost
	forget []poolKey        // computes whose targets nobody needs any more
	back   []*driver.Target // were away
	market *market          // quotas and sizes, read once
	met    bool             // the nodes that others made were read
	above  []jobKey         // pipelines whose steps changed
	logs   []logWrite

	portsTaken map[int]bool // spans of reserved ports, by the first
	portsAsked []int        // spans to reserve, by the ports needed
	anew       bool         // the picture was made anew from the store
}

type started struct {
	task   berth.Task
	launch berth.Launch
}

type stopping struct {
	task berth.TaskID
	driver.Stop
}

// touched is what events said has changed.
type touched struct {
	jobs  map[jobKey]bool
	pools map[poolKey]bool            // to be read again and decided upon
	nodes map[poolKey]map[string]bool // nodes to be read again; their pools to be decided upon
	due   []poolKey                   // to be decided upon
	// budgets are workspaces whose budgets are to be read again; their pools to be decided upon.
	budgets map[string]bool
	limits  bool // those of users are to be read again
	clock   bool // it was set
}

// advance makes the next step of each touched job and pool in one transaction, then acts. The transaction changes the loop's picture
// of the world as it goes; when it has to be run again, that picture is first made anew from the store.
func (c *Control) advance(ctx context.Context, t touched) {
	begin := time.Now()
	defer func() { c.cycles.Observe(time.Since(begin)) }()
	var m *move
	c.ports.fill()
	backoff := 50 * time.Millisecond
	for {
		var faulty bool
		var err error
		if m, faulty, err = c.runCycle(ctx, t); err == nil {
			c.stale = false
			break
		}
		if ctx.Err() != nil {
			return
		}
		if faulty {
			t.jobs[m.at] = true // so that it ends
			continue
		}
		c.o.Log.Error("jobs could not be advanced; trying again", "jobs", len(t.jobs), "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
			backoff = min(2*backoff, 5*time.Second)
		}
	}
	c.act(ctx, m)
}

// newMove begins a move over a picture of the world that is what the store says.
func (c *Control) newMove(tx *store.Tx) (*move, error) {
	anew := c.stale
	if d := tx.Shifted() - c.shifted; d != 0 {
		c.shiftMemory(d)
		c.shifted, anew = c.shifted+d, true
	}
	if anew {
		if err := c.read(tx); err != nil {
			return nil, err
		}
	}
	c.stale = true // until this is durable
	for _, p := range c.pools {
		p.before = p.memory
	}
	return &move{
		c: c, tx: tx, now: tx.Now(), jobs: map[jobKey]*jobWork{}, pools: map[poolKey]bool{}, fresh: map[poolKey][]string{},
		nodes: map[string]nodeChange{}, anew: anew,
	}, nil
}

// act does what a move decided.
func (c *Control) act(ctx context.Context, m *move) {
	for _, p := range m.ended {
		c.ended(p.task.Compute, m.now)
		delete(c.placed, p.task.ID)
		p.over.Store(true)
		select {
		case <-p.started:
		default:
			c.leaving[p.task.ID] = p
		}
		c.removeTask(ctx, p)
	}
	for _, s := range m.moved {
		c.o.Moved(s[0], s[1])
	}
	c.writeLogs(m)
	for k, j := range m.jobs {
		if f := c.faults[k]; f != nil && !f.ignored && (!f.ends || berth.JobStatus(j.doc.Status).Terminal()) {
			delete(c.faults, k)
		}
		if j.pipeline && berth.JobStatus(j.doc.Status).Terminal() {
			delete(c.logged, k)
		}
	}
	for _, s := range m.start {
		c.startTask(ctx, s)
	}
	c.settlePorts(m)
	for _, s := range m.stop {
		if p := c.placed[s.task]; p != nil {
			c.stopTask(ctx, p, s.Stop)
		}
	}
	for _, n := range m.add {
		c.addNode(ctx, n)
	}
	for _, n := range m.remove {
		c.removeNode(ctx, n)
	}
	c.greet(ctx, m.back)
	c.loseAll(ctx, m.lost)
	for _, k := range m.forget {
		if err := c.o.Targets.Forget(k.workspace, k.compute); err != nil {
			c.o.Log.Warn("target not let go", "compute", k.compute, "err", err)
		}
	}
	for _, dir := range m.over {
		c.acts.Go(func() { c.discard(dir) })
	}
}

// discard deletes what the attempts at a job handed on to each other.
func (c *Control) discard(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		c.o.Log.Warn("kept outputs not deleted", "dir", dir, "err", err)
	}
}

func (m *move) run(t touched) error {
	for k := range t.pools {
		if err := m.refresh(k); err != nil {
			return err
		}
	}
	for k, names := range t.nodes {
		if err := m.refreshNodes(k, names); err != nil {
			return err
		}
	}
	if t.limits {
		if err := m.c.readLimits(m.tx); err != nil {
			return err
		}
	}
	for workspace := range t.budgets {
		if err := m.c.readBudgets(m.tx, workspace); err != nil {
			return err
		}
	}
	for k := range m.c.pools {
		if t.budgets[k.workspace] {
			m.pools[k] = true
		}
	}
	for _, k := range t.due {
		m.pools[k] = true
	}
	if m.anew { // when to look at each is not known any more
		for k := range m.c.pools {
			m.pools[k] = true
		}
	}
	var jobs []*jobWork
	for k := range t.jobs {
		m.at = k
		j, err := m.job(k)
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
		m.at = j.key()
		if err := m.step(j); err != nil {
			return err
		}
	}
	m.at = jobKey{}
	waited := m.c.reserved(nil)
	for _, local := range []bool{false, true} { // the machine itself last: a node may need it for itself
		for k := range m.pools {
			if (k.workspace == "") != local {
				continue
			}
			if err := m.decide(k); err != nil {
				return err
			}
		}
	}
	if m.c.reserved(nil) != waited { // one pool needs the machine for itself, or does not any more: that concerns all
		for k := range m.c.pools {
			if err := m.decide(k); err != nil {
				return err
			}
		}
	}
	for _, j := range m.jobs {
		if j.pipeline {
			continue // after their steps
		}
		m.at = j.key()
		if err := m.save(j); err != nil {
			return err
		}
	}
	m.at = jobKey{}
	if err := m.pipelines(); err != nil {
		return err
	}
	return m.saveNodes()
}

// decide sizes a pool and places what can be placed. What was placed may have left others short of nodes that seemed enough, so it
// looks again until nothing more is placed.
func (m *move) decide(k poolKey) error {
	for {
		p := m.c.pools[k]
		if p == nil {
			return nil
		}
		if err := m.resize(p); err != nil {
			return err
		}
		before := len(m.start)
		for again := true; again; {
			var err error
			if again, err = m.place(p); err != nil {
				return err
			}
		}
		if p.single() || p.queue.Len() == 0 || len(m.start) == before {
			return nil
		}
	}
}
