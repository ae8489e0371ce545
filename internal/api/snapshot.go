package api

import (
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/plan"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// snapshot reads computes as the pure packages see them. It belongs to one transaction.
type snapshot struct {
	s    *Server
	tx   *store.Tx
	ws   string // key of the workspace
	user string // who asks
	now  time.Time

	sizes *sizes.Catalogue
	tasks []*berth.Task // that are not done, of all workspaces
	runs  map[string][]cost.Run
	// priced wants to know what earlier runs cost, too.
	priced bool
}

func (c *call) snapshot(tx *store.Tx) *snapshot {
	return &snapshot{s: c.s, tx: tx, ws: c.ws.Key(), user: c.who.User, now: c.now, runs: map[string][]cost.Run{}}
}

func (x *snapshot) size(name string) (berth.Size, bool, error) {
	if x.sizes == nil {
		c, err := sizes.LoadTx(x.tx)
		if err != nil {
			return berth.Size{}, false, err
		}
		x.sizes = &c
	}
	z, ok := x.sizes.Find(name)
	return z, ok, nil
}

func (x *snapshot) active() ([]*berth.Task, error) {
	if x.tasks != nil {
		return x.tasks, nil
	}
	var err error
	x.tasks, err = x.tx.ActiveTasks()
	return x.tasks, err
}

// pool is a compute with its nodes and what runs on it and waits for it.
func (x *snapshot) pool(d *store.Doc) (p plan.Pool, st berth.ComputeState, err error) {
	if berth.IsLocal(d.Name) {
		p, err = x.local()
		return p, st, err
	}
	spec, err := berth.ReadPool(d.Body)
	if err != nil {
		return p, st, err
	}
	if st, err = target.State(d); err != nil {
		return p, st, err
	}
	if spec.Attached() {
		p = attachedPool(d.Name, st)
		p.Down = down(d.Name, st, spec, 1)
		return p, st, x.gangs(&p)
	}
	p = plan.Pool{
		Name: d.Name, Type: plan.Cluster, Low: spec.Low(), Min: spec.Min, Max: spec.Max, Slots: spec.Slots, Idle: spec.Idle, Spread: spec.Spread,
		Room: plan.NoBound, Expect: map[string]plan.Expect{},
	}
	switch {
	case spec.Instance():
		p.Type, p.Min, p.Max, p.Idle = plan.Instance, 0, 1, 0
	case st.Serverless:
		p.Type = plan.Serverless
	}
	if size, ok, err := x.size(spec.Properties.VMSize); err != nil {
		return p, st, err
	} else if ok {
		p.Size = &size
	} else {
		p.Size = &berth.Size{Name: spec.Properties.VMSize}
	}
	nodes, err := nodesOf(x.tx, d.Workspace, d.Name)
	if err != nil {
		return p, st, err
	}
	for _, n := range nodes {
		p.Nodes = append(p.Nodes, plan.Node{Node: n})
	}
	p.Down = down(d.Name, st, spec, len(nodes))
	if err := x.gangs(&p); err != nil {
		return p, st, err
	}
	return p, st, x.bars(&p)
}

// bars fills in how many tasks more the users who wait for a cluster, and the one who asks, may have where they are limited.
func (x *snapshot) bars(p *plan.Pool) error {
	if p.Type == plan.Instance || len(p.Nodes) == 0 {
		return nil // an instance counts as a whole, and a pool without nodes grows by quota
	}
	limits, err := quota.LoadTx(x.tx, x.s.QuotaDefault)
	if err != nil {
		return err
	}
	if limits = limits.Personal(); len(limits.All) == 0 {
		return nil
	}
	running, err := quota.Running(x.tx)
	if err != nil {
		return err
	}
	n := p.Nodes[0]
	p.Bars = map[string]sched.Bar{}
	bar := func(user string) {
		ask := quota.Task{Workspace: x.ws, Family: n.Family, User: user, Low: n.Low, VCPUs: float64(n.VCPUs) / float64(max(1, n.Slots))}
		if tasks, unlimited, why := limits.Left(running, ask, x.now); !unlimited {
			p.Bars[user] = sched.Bar{Nodes: tasks, Why: why}
		}
	}
	bar(x.user)
	for _, g := range p.Waiting {
		if _, ok := p.Bars[g.User]; !ok {
			bar(g.User)
		}
	}
	return nil
}

// down is why a compute takes no jobs now, nil when it does.
func down(name string, st berth.ComputeState, spec berth.PoolSpec, nodes int) *berth.PlanLimit {
	kind, why := st.Down(name, spec, nodes)
	if kind == "" {
		return nil
	}
	return &berth.PlanLimit{Kind: kind, Whose: name, Why: why}
}

// attachedPool is a machine that connects by itself: one node, which takes nothing while it is away.
func attachedPool(name string, st berth.ComputeState) plan.Pool {
	slots := 1
	if st.Attached != nil {
		slots = max(1, st.Attached.Slots)
	}
	return plan.Pool{
		Name: name, Type: plan.Attached, Max: 1, Slots: slots, Room: plan.NoBound, Expect: map[string]plan.Expect{},
		Nodes: []plan.Node{{Node: berth.Node{Name: name, State: berth.NodeIdle, Slots: slots}}},
	}
}

// local is the machine itself: one node that is always there.
func (x *snapshot) local() (plan.Pool, error) {
	p := plan.Pool{
		Name: berth.LocalCompute, Type: plan.Local, Max: 1, Slots: max(1, x.s.Slots), Room: plan.NoBound, Expect: map[string]plan.Expect{},
		Nodes: []plan.Node{{Node: berth.Node{Name: berth.LocalCompute, State: berth.NodeIdle, Slots: max(1, x.s.Slots)}}},
		Size:  x.s.Local.Size(),
	}
	m, err := x.machine()
	if err != nil {
		return p, err
	}
	if down := m.Local(); down != "" {
		p.Down = &berth.PlanLimit{Kind: berth.LimitMachine, Whose: p.Name, Why: down}
	}
	if err := x.gangs(&p); err != nil || x.s.Local.PerUser == 0 {
		return p, err
	}
	runs := map[string]int{}
	for _, r := range p.Running {
		runs[r.User]++
	}
	p.Bars = map[string]sched.Bar{x.user: sched.LocalBar(x.s.Local.PerUser, runs[x.user])}
	for _, g := range p.Waiting {
		p.Bars[g.User] = sched.LocalBar(x.s.Local.PerUser, runs[g.User])
	}
	return p, nil
}

// gangs fills in what runs on a pool and what waits for it.
func (x *snapshot) gangs(p *plan.Pool) error {
	tasks, err := x.active()
	if err != nil {
		return err
	}
	running, waiting := map[string]*sched.Running{}, map[string]bool{}
	var order []string
	for _, t := range tasks {
		if !strings.EqualFold(t.Compute, p.Name) || p.Type != plan.Local && t.Workspace != x.ws {
			continue
		}
		id := t.Gang()
		g := sched.GangOf(t)
		if t.State == berth.TaskWaiting {
			if !waiting[id] {
				waiting[id] = true
				p.Waiting = append(p.Waiting, g)
			}
			continue
		}
		node := t.Node
		if p.Single() {
			node = p.Name
		}
		for k := range p.Nodes {
			if p.Nodes[k].Name == node {
				p.Nodes[k].Used++
			}
		}
		r := running[id]
		if r == nil {
			r = &sched.Running{Gang: g, Since: t.Times.Placed}
			if !t.Times.Started.IsZero() {
				r.Since = t.Times.Started // limits count from here
			}
			running[id] = r
			order = append(order, id)
		}
		r.On = append(r.On, node)
		r.Stopping = r.Stopping || t.Stop || t.Evict
	}
	for _, id := range order {
		p.Running = append(p.Running, *running[id])
	}
	return x.expect(p, tasks)
}
