package control

import (
	"context"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/store"
)

// Target is one target as control uses it.
type Target struct {
	Driver *driver.Target
	// Info is what it can do as far as that is known without asking it.
	Info driver.Info
	// Home is how its runners reach this server, without a token.
	Home berth.Home
}

// targets are those that computes share.
type targets struct {
	here  Target // this machine
	nodes Target // the nodes that are made on it; its Driver is nil where none can be
}

// openTargets finds the targets that computes share.
func (c *Control) openTargets() error {
	here, err := c.o.Targets.Shared(berth.LocalCompute)
	if err != nil {
		return err
	}
	c.here = c.describe(here)
	nodes, err := c.o.Targets.Shared(strings.ToLower(berth.TypeCluster))
	if err == nil {
		c.nodes = c.describe(nodes)
	} else if berth.CodeOf(err) != berth.Unsupported {
		return err
	}
	return nil
}

// describe is a target with what is known of it.
func (c *Control) describe(t *driver.Target) Target {
	if d, ok := t.Driver().(driver.Describer); ok {
		return c.withInfo(t, d.Describe())
	}
	return c.withInfo(t, driver.Info{})
}

func (c *Control) withInfo(t *driver.Target, i driver.Info) Target {
	if i.SharedDisk {
		return Target{Driver: t, Info: i, Home: c.o.Near}
	}
	return Target{Driver: t, Info: i, Home: c.o.Far}
}

// target is where a task runs.
func (c *Control) target(s *state, t *berth.Task) Target {
	if p := s.pool(keyOf(t.Workspace, t.Compute)); p != nil && p.target.Driver != nil {
		return p.target
	}
	return c.nodes // its compute is gone: then a node of it may be left
}

// makes is the target that makes and gives back the nodes of a compute.
func (c *Control) makes(n berth.Node) *driver.Target {
	if p := c.state.pool(keyOf(n.Workspace, n.Compute)); n.Provider != "" && p != nil && p.target.Driver != nil {
		return p.target.Driver
	}
	return c.nodes.Driver
}

// makers are the targets that make nodes: that of this machine, and those of clusters that have
// another provider.
func (c *Control) makers() (all []*driver.Target) {
	if c.nodes.Driver != nil {
		all = append(all, c.nodes.Driver)
	}
	for _, p := range c.state.pools.All() {
		if p.spec.Provider != "" && p.target.Driver != nil {
			all = append(all, p.target.Driver)
		}
	}
	return all
}

// slots is how many tasks a target of one node runs at once.
func slots(i driver.Info) int {
	n := 0
	for _, x := range i.Nodes {
		n += x.Slots
	}
	return max(1, n)
}

// single says that the pool is one machine that nobody makes or gives back.
func (p *pool) single() bool { return p.local || p.spec.Attached() }

// newLocal makes the pool of the machine itself.
func newLocal(k poolKey, name string, t Target) *pool {
	p := newPool(k, name)
	p.local, p.target = true, t
	p.setSlots(slots(t.Info))
	return p
}

func (p *pool) setSlots(n int) { p.setMachines([]berth.Node{picture.Machine(p.name, n)}) }

// setMachines makes the pool's nodes machines that nobody makes or gives back. What is on them
// stays.
func (p *pool) setMachines(all []berth.Node) {
	was := map[string]*node{}
	for _, n := range p.nodes {
		was[n.Name] = n
	}
	p.spec.Max, p.spec.Slots, p.nodes = len(all), all[0].Slots, nil
	for _, v := range all {
		n := &node{Node: v, edition: p.edition}
		if old := was[n.Name]; old != nil {
			n.used, n.holders = old.used, old.holders
		}
		p.nodes = append(p.nodes, n)
	}
}

// several says that the pool is a number of attached machines, each of which is a node.
func (p *pool) several() bool { return p.spec.Attached() && p.state.Attached.Several() }

// readAttached reads what is new of an attached machine: how many tasks it takes and, unless its
// driver knows that by itself, what it said it could do when it connected. Nothing makes or gives
// back such a machine: the pool has one node, and while it is away takes nothing.
func (c *Control) readAttached(p *pool) {
	p.setMachines(picture.Machines(p.name, p.state))
	a := p.state.Attached
	if a.Several() {
		info := driver.Info{Distributed: a.Distributed}
		for _, m := range a.Machines {
			info.Nodes = append(info.Nodes, driver.Node{Name: m.Name, Address: m.Address})
		}
		p.target = c.withInfo(p.target.Driver, info)
		return
	}
	if _, ok := p.target.Driver.Driver().(driver.Describer); ok || a == nil {
		return
	}
	p.target = c.withInfo(p.target.Driver, driver.Info{SharedDisk: a.SharedDisk, Queues: a.Queues, Distributed: a.Distributed, Address: a.Address})
}

// connected is the connection that the machine of an attached compute has, "" when it has none.
func (p *pool) connected() string {
	if a := p.state.Attached; a != nil && a.Connected {
		return a.Session
	}
	return ""
}

// hasMachine reports whether the machine of a task is connected.
func (p *pool) hasMachine(node string) bool {
	switch {
	case p.connected() == "":
		return false
	case !p.several():
		return true
	}
	return slices.ContainsFunc(p.state.Attached.Machines, func(m berth.AttachedMachine) bool { return m.Name == node && m.Away == "" })
}

// detach ends an attached compute that is being deleted, once nothing runs on it. What runs on a
// machine that is not there cannot be waited for: it is lost.
func (cy *cycle) detach(p *pool) error {
	if !p.state.Deleting() {
		return nil
	}
	if err := cy.cancelWaiting(p); err != nil {
		return err
	}
	if p.connected() == "" || p.several() {
		for _, pl := range cy.state.placed {
			if keyOf(pl.task.Workspace, pl.task.Compute) == p.key && !p.hasMachine(pl.task.Node) {
				cy.plan.lostTasks = append(cy.plan.lostTasks, lostTask{pl.task.ID, "compute " + p.name + " was detached while its machine was not connected"})
			}
		}
	}
	if p.queue.Len() > 0 || slices.ContainsFunc(p.nodes, func(n *node) bool { return n.used > 0 }) {
		return nil
	}
	cy.plan.forgetTargets = append(cy.plan.forgetTargets, p.key)
	return cy.deleteCompute(p, "detached: nothing of it is left here")
}

// onAttached says whether a compute is a machine that connects by itself.
func onAttached(tx *store.Tx, workspace, compute string) (bool, error) {
	d, err := tx.Get(workspace, "computes", compute, "")
	if berth.CodeOf(err) == berth.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	spec, err := berth.ReadPool(d.Body)
	return err == nil && spec.Attached(), nil
}

// lostTask is a task whose end nobody will report.
type lostTask struct {
	task berth.TaskID
	why  string
}

// endLostTasks ends tasks that are lost.
func (c *Control) endLostTasks(ctx context.Context, all []lostTask) {
	for _, l := range all {
		c.acts.Go(func() { c.endTask(ctx, l.task, &berth.Exit{Code: -1, Cause: "lost", Reason: l.why}) })
	}
}
