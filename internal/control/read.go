package control

import (
	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// readState reads the picture of the world from the store: pools, nodes, gangs that wait and tasks
// that were placed. What only the loop knows it takes from old, which stays as it is.
func (c *Control) readState(tx *store.Tx, old *state) (*state, error) {
	s := &state{placed: map[berth.TaskID]*placement{}, lastNodeID: old.lastNodeID, shifted: tx.Shifted()}
	here := keyOf("", berth.LocalCompute)
	s.pools.Set(here, newLocal(here, berth.LocalCompute, c.here))
	workspaces, err := tx.List(store.Query{Kind: "workspaces"})
	if err != nil {
		return nil, err
	}
	if err := c.readLimits(tx, s); err != nil {
		return nil, err
	}
	for _, w := range workspaces {
		if err := readExhausted(tx, s, w.Name); err != nil {
			return nil, err
		}
		docs, err := tx.All(store.Query{Workspace: w.Name, Kind: "computes", Asc: true})
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			if err := c.readPool(tx, s, d); err != nil {
				return nil, err
			}
		}
	}
	for k, p := range old.pools.All() {
		if q := s.pool(k); q != nil {
			q.memory = p.memory
			berth.Shift(s.shifted-old.shifted, &q.exclusiveSince, &q.retry)
			if s.shifted != old.shifted {
				q.unneeded = nil // their time begins anew
			}
		}
	}
	return s, readTasks(tx, s, old.placed)
}

// readTasks reads what waits and what was placed. Placements that are known are kept.
func readTasks(tx *store.Tx, s *state, known map[berth.TaskID]*placement) error {
	tasks, err := tx.ActiveTasks()
	if err != nil {
		return err
	}
	for _, t := range tasks {
		p := s.poolOf(t)
		if t.State == berth.TaskWaiting {
			s.enqueue(p, t)
			continue
		}
		pl := known[t.ID]
		if pl == nil {
			pl = &placement{task: *t, started: make(chan struct{}), inherited: true}
		}
		s.placed[t.ID] = pl
		p.occupy(t)
	}
	for id, pl := range known {
		if s.placed[id] != nil {
			continue
		}
		t, err := tx.Task(id)
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if t.State == berth.TaskDone { // which is yet to be acted on
			s.placed[id] = pl
			s.poolOf(t).occupy(t)
		}
	}
	return nil
}

// readLimits reads the limits of single users. They hold for their jobs wherever these run, also on
// nodes that were made for others.
func (c *Control) readLimits(tx *store.Tx, s *state) error {
	all, err := quota.LoadTx(tx, c.o.QuotaDefault)
	s.personal = all.Personal()
	return err
}

// readPool brings a picture of one compute up to date with its document and those of its nodes.
func (c *Control) readPool(tx *store.Tx, s *state, d *store.Doc) error {
	spec, err := berth.ReadPool(d.Body)
	if err != nil {
		s.problems = append(s.problems, problem{"compute cannot be read, and is left alone", "compute", d.Name, err})
	}
	if err != nil || berth.IsLocal(d.Name) { // the server's own machine has no pool for each workspace
		return nil //nolint:nilerr // it is logged, and must not hold up the others
	}
	k := keyOf(d.Workspace, d.Name)
	p := s.ownPool(k)
	if p == nil {
		p = newPool(k, d.Name)
		s.pools.Set(k, p)
	}
	p.name, p.spec, p.stored = d.Name, poolSpec{spec, d.CreatedBy}, d.Own
	if p.state, err = target.State(d); err != nil {
		s.problems = append(s.problems, problem{"state of a compute cannot be read; it starts empty", "compute", d.Name, err})
		p.state = berth.ComputeState{}
	}
	if p.target.Driver == nil {
		t, err := c.o.Targets.Of(driver.Compute{Workspace: d.Workspace, Name: d.Name, Body: d.Body})
		if err != nil && berth.CodeOf(err) != berth.Unavailable { // it must not hold up the others
			if spec.Attached() && p.state.Deleting() {
				p.setSlots(1) // it needs no driver to be detached
				return nil
			}
			if p.queue.Len() == 0 && p.running.Len() == 0 {
				s.pools.Delete(k)
			}
			s.problems = append(s.problems, problem{"compute left alone", "compute", d.Name, err})
			return nil
		}
		if err != nil {
			return err
		}
		p.target = c.describe(t)
	}
	if spec.Attached() {
		c.readAttached(p)
		return nil
	}
	return readNodes(tx, s, p)
}

// readNodes reads the nodes of a cluster or an instance. What is on them stays.
func readNodes(tx *store.Tx, s *state, p *pool) error {
	docs, err := target.NodeDocs(tx, p.key.workspace, p.name)
	if err != nil {
		return err
	}
	used := map[string]int{}
	for _, n := range p.nodes {
		used[n.Name] = n.used
	}
	p.nodes = make([]*node, 0, len(docs))
	for _, d := range docs {
		n := &node{used: used[d.Name], edition: p.edition}
		if n.Node, err = target.Node(d); err != nil {
			s.problems = append(s.problems, problem{"node cannot be read, and is left alone", "node", d.Name, err})
			continue
		}
		p.nodes = append(p.nodes, n)
	}
	return nil
}

// kindMeter is the kind of the documents that say what was used.
const kindMeter = "meters"
