// Package picture describes a pool: a compute with its nodes, the jobs on them and those that wait.
// The control loop decides by this description, and plans and explanations are made from it, so
// that they cannot contradict each other.
package picture

import (
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/scale"
	"github.com/berthml/berth/internal/sched"
)

// Types of pools.
const (
	Local      = "local"
	Cluster    = "cluster"
	Instance   = "instance"
	Serverless = "serverless"
	Attached   = "attached machine"
)

// Pool is a compute as the scheduler and the autoscaler are asked about it.
type Pool struct {
	Name  string
	Owner string // who created the compute
	berth.PoolSpec
	State berth.ComputeState
	Nodes []Node
	Held  map[string]int       // nodes by user, for fairness
	Bars  map[string]sched.Bar // users who are limited
	// Short is why it cannot grow, where that is known already.
	Short string
	// Occupied is why the server's own machine takes no tasks: an isolated node has it or waits for
	// it.
	Occupied string
	// Exhausted are the budgets of the workspace that are used up.
	Exhausted []berth.Budget

	// What only the control loop knows; plans and explanations have the zero values:

	Overcommit int       // tasks that its target keeps in line, beside those in slots
	Replicas   int       // tasks that are first in line, and take slots of their own on its first node
	Retry      time.Time // no node is requested before
	Clearing   bool      // an isolated node waits for the machine to be empty
	// Unneeded is since when nobody needs nodes that are yet to come.
	Unneeded map[string]time.Time
}

// Node is a node with the number of tasks on it.
type Node struct {
	*berth.Node
	Used    int
	Holders sched.Holders // those that may have GPUs of one of several machines
}

// Type is what kind of pool it is.
func (p *Pool) Type() string {
	switch {
	case berth.IsLocal(p.Name):
		return Local
	case p.Attached():
		return Attached
	case p.Instance():
		return Instance
	case p.State.Serverless:
		return Serverless
	}
	return Cluster
}

// Single reports whether the pool is one machine that nobody creates or gives back.
func (p *Pool) Single() bool { return berth.IsLocal(p.Name) || p.Attached() }

// Several reports whether the pool is a number of attached machines, each of which is a node.
func (p *Pool) Several() bool { return p.Attached() && p.State.Attached.Several() }

// Scales reports whether the autoscaler decides how many nodes the pool has.
func (p *Pool) Scales() bool { return !p.Single() && !p.Instance() }

// Down is why the pool takes no tasks now, as the kind of a berth.PlanLimit and a sentence; both
// are empty when it does.
func (p *Pool) Down() (kind, why string) {
	if !berth.IsLocal(p.Name) {
		return p.State.Down(p.Name, p.PoolSpec, len(p.Nodes))
	}
	if p.Occupied == "" {
		return "", ""
	}
	return berth.LimitMachine, p.Occupied
}

// Sched is the pool as the scheduler sees it. A single machine is shared by turns: who goes first
// does not depend on what runs, and nothing is stopped for others.
func (p *Pool) Sched() sched.Pool {
	out := sched.Pool{
		Name: p.Name, Max: p.Max, Spread: p.Spread, Ahead: p.Overcommit, Held: p.Held, Short: p.Short, Bars: p.Bars,
		Preempt: !p.Single(), GPUs: p.Several(), Nodes: make([]sched.Node, len(p.Nodes)),
	}
	_, out.Down = p.Down()
	if p.Single() {
		out.Held = nil
	}
	if p.Several() {
		out.Short = p.State.Attached.Short()
	}
	for i, n := range p.Nodes {
		out.Nodes[i] = sched.Node{Name: n.Name, Slots: max(1, n.Slots), Used: n.Used, Ready: n.Usable()}
		if out.GPUs {
			has := len(n.GPUs)
			out.Nodes[i].GPUs, out.Nodes[i].Share, out.Nodes[i].Holders = has, berth.ShareOfGPUs(has, n.Slots), n.Holders
		}
		if n.State == berth.NodePreparing {
			out.Starting++
		}
	}
	if p.Replicas > 0 {
		out.Nodes[0].Slots += p.Replicas
	}
	return out
}

// Scale is the pool, with what waits for it, as the autoscaler sees it. Nothing but its own size
// bounds it: what quotas and the machine leave room for is for the caller to add.
func (p *Pool) Scale(q *sched.Queue) scale.Pool {
	out := scale.Pool{
		Name: p.Name, Min: p.Min, Max: p.Max, Idle: p.Idle, Slots: max(1, p.Slots), Room: p.Max, Wait: p.Retry, Sizes: q.Sizes(),
	}
	if len(p.Bars) > 0 {
		out.Sizes, _ = q.SizesWithin(p.Held, p.Bars)
	}
	for _, n := range p.Nodes {
		if n.State == berth.NodeLeaving {
			continue
		}
		v := scale.Node{
			Name: n.Name, Starting: n.State == berth.NodePreparing, Busy: n.Used, Since: n.IdleSince,
			Evicted: n.State == berth.NodePreempted || n.State == berth.NodeUnusable,
		}
		if v.Starting {
			v.Since = p.Unneeded[n.Name]
		}
		if title := cost.Charged(p.Exhausted, n.User); title != "" {
			v.Unpaid = title + " is used up"
		}
		out.Nodes = append(out.Nodes, v)
	}
	p.hold(&out)
	if p.Clearing {
		out.Idle = 0
	}
	return out
}

// hold keeps no idle nodes of a compute that is being deleted, nor of one whose budget is used up,
// whatever minimum its document gives. Where it is the budget of the workspace there cannot be new
// work either.
func (p *Pool) hold(out *scale.Pool) {
	title := cost.Charged(p.Exhausted, p.Owner)
	switch {
	case p.State.Deleting():
		out.Hold = "it is being deleted"
	case title == "":
	case slices.ContainsFunc(p.Exhausted, func(b berth.Budget) bool { return b.User == "" }):
		out.Hold = title + " is used up"
	default:
		out.Min = 0
	}
}

// Machine is the one node of a pool that is a single machine.
func Machine(name string, slots int) berth.Node {
	return berth.Node{Name: name, State: berth.NodeIdle, Slots: max(1, slots)}
}

// Machines are the nodes of a pool that was attached: one, unless several machines are attached
// together.
func Machines(name string, st berth.ComputeState) []berth.Node {
	if !st.Attached.Several() {
		return []berth.Node{Machine(name, AttachedSlots(st))}
	}
	var out []berth.Node
	for _, m := range st.Attached.Machines {
		n := Machine(m.Name, m.Slots)
		for i := range m.GPUs {
			n.GPUs = append(n.GPUs, i)
		}
		if why := m.Refuses(); why != "" {
			n.State, n.Why = berth.NodeUnusable, why
		}
		out = append(out, n)
	}
	return out
}

// AttachedSlots is how many tasks an attached machine runs at once.
func AttachedSlots(st berth.ComputeState) int {
	if st.Attached == nil {
		return 1
	}
	return max(1, st.Attached.Slots)
}
