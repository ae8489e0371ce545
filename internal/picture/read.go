package picture

import (
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// Reader reads the pools of a workspace from the store, in one transaction.
type Reader struct {
	Tx        *store.Tx
	Workspace string // its key
	Now       time.Time
	// Terms, Slots and Machine are those of the server's own machine.
	Terms        berth.LocalTerms
	Slots        int
	Machine      sched.Machine
	QuotaDefault int

	tasks []*berth.Task
}

// Read is a pool with the gangs that run on it and wait for it.
type Read struct {
	Pool
	Running []sched.Running // oldest first
	Waiting []sched.Gang
}

// Tasks are those that are not done, of all workspaces.
func (r *Reader) Tasks() (_ []*berth.Task, err error) {
	if r.tasks == nil {
		r.tasks, err = r.Tx.ActiveTasks()
	}
	return r.tasks, err
}

// Pool reads the pool of a compute.
func (r *Reader) Pool(d *store.Doc) (p Read, err error) {
	if berth.IsLocal(d.Name) {
		return r.Local()
	}
	p.Name, p.Owner = d.Name, d.CreatedBy
	if p.PoolSpec, err = berth.ReadPool(d.Body); err != nil {
		return p, err
	}
	if p.State, err = target.State(d); err != nil {
		return p, err
	}
	if p.Attached() {
		p.setMachines()
		return p, r.gangs(&p)
	}
	if p.Exhausted, err = cost.UsedUp(r.Tx, r.Workspace); err != nil {
		return p, err
	}
	nodes, err := target.Nodes(r.Tx, d.Workspace, d.Name)
	if err != nil {
		return p, err
	}
	for i := range nodes {
		p.Nodes = append(p.Nodes, Node{Node: &nodes[i]})
	}
	return p, r.gangs(&p)
}

// Local reads the pool of the server's own machine.
func (r *Reader) Local() (p Read, err error) {
	p.Name = berth.LocalCompute
	p.setMachine(r.Slots)
	m, err := r.Occupied()
	if err != nil {
		return p, err
	}
	p.Occupied = m.Local()
	return p, r.gangs(&p)
}

// setMachine makes the pool a single machine.
func (p *Pool) setMachine(slots int) {
	n := Machine(p.Name, slots)
	p.Max, p.Slots, p.Nodes = 1, n.Slots, []Node{{Node: &n}}
}

// setMachines makes the pool the machines that were attached.
func (p *Pool) setMachines() {
	nodes := Machines(p.Name, p.State)
	p.Max, p.Slots, p.Nodes = len(nodes), nodes[0].Slots, nil
	for i := range nodes {
		p.Nodes = append(p.Nodes, Node{Node: &nodes[i]})
	}
}

// gangs reads what runs on a pool and what waits for it.
func (r *Reader) gangs(p *Read) error {
	tasks, err := r.Tasks()
	if err != nil {
		return err
	}
	node := func(t *berth.Task) string {
		if p.Single() && !p.Several() {
			return p.Name
		}
		return t.Node
	}
	var placed []*berth.Task
	waiting := map[string]bool{}
	for _, t := range tasks {
		switch {
		case !p.Has(t, r.Workspace):
		case t.State != berth.TaskWaiting:
			placed = append(placed, t)
			i := slices.IndexFunc(p.Nodes, func(n Node) bool { return n.Name == node(t) })
			if i >= 0 && !(t.Serves && p.Single()) {
				p.Nodes[i].Used++
			}
			if i >= 0 && p.Several() {
				p.Nodes[i].Holders = p.Nodes[i].Holders.With(sched.GangOf(t))
			}
		case !waiting[t.Gang()]:
			waiting[t.Gang()] = true
			g := sched.GangOf(t)
			if p.Single() && !p.Several() {
				g.Nodes = 1 // as in the control loop
			}
			p.Waiting = append(p.Waiting, g)
		}
	}
	p.Running = running(placed, node)
	p.Held = heldBy(p.Running)
	return nil
}

// Has reports whether a task of a workspace runs on the pool or waits for it. The server's own
// machine is shared by all workspaces.
func (p *Pool) Has(t *berth.Task, workspace string) bool {
	return strings.EqualFold(t.Compute, p.Name) && (berth.IsLocal(p.Name) || t.Workspace == workspace)
}

// running lists the gangs of tasks that have nodes, oldest first.
func running(tasks []*berth.Task, node func(*berth.Task) string) []sched.Running {
	byID := map[string]sched.Running{}
	for _, t := range tasks {
		byID[t.Gang()] = byID[t.Gang()].With(t, node(t))
	}
	out := make([]sched.Running, 0, len(byID))
	for _, g := range byID {
		out = append(out, g)
	}
	sched.SortByAge(out)
	return out
}

// heldBy counts the nodes of each user.
func heldBy(running []sched.Running) map[string]int {
	held := map[string]int{}
	for _, g := range running {
		held[g.User] += len(g.On)
	}
	return held
}

// Bar fills in how many tasks more those may have who wait for a pool, and one other user.
func (r *Reader) Bar(p *Read, other string) error {
	l := Limits{
		PerUser: r.Terms.PerUser, Here: p.Held, Now: r.Now,
		Running: func() ([]quota.Task, error) { return quota.Running(r.Tx) },
		Users: func() []string {
			users := []string{other}
			for _, g := range p.Waiting {
				users = append(users, g.User)
			}
			slices.Sort(users)
			return slices.Compact(users)
		},
	}
	if p.Scales() {
		limits, err := quota.LoadTx(r.Tx, r.QuotaDefault)
		if err != nil {
			return err
		}
		l.Personal = limits.Personal()
	}
	return p.Bar(r.Workspace, l)
}

// Occupied is the server's own machine with everything that is on it.
func (r *Reader) Occupied() (sched.Machine, error) {
	m := r.Machine
	m.Nodes = slices.Clone(m.Nodes)
	tasks, err := r.Tasks()
	if err != nil {
		return m, err
	}
	for _, t := range tasks {
		if t.State != berth.TaskWaiting && berth.IsLocal(t.Compute) {
			m.LocalTasks++
		}
	}
	workspaces, err := r.Tx.All(store.Query{Kind: "workspaces", NoBody: true})
	if err != nil {
		return m, err
	}
	for _, w := range workspaces {
		nodes, err := target.Nodes(r.Tx, w.Name, "")
		if err != nil {
			return m, err
		}
		for _, n := range nodes {
			if n.Provider == "" {
				m.Nodes = append(m.Nodes, sched.GuestOf(n))
			}
		}
	}
	slices.SortStableFunc(m.Nodes, func(a, b sched.Guest) int { return strings.Compare(a.Compute, b.Compute) })
	return m, nil
}
