package sched

import "github.com/berthml/berth"

// What the loop schedules and what plans and explanations speak of are made here, so that they cannot contradict each other.

// GangOf is the gang of a task.
func GangOf(t *berth.Task) Gang {
	return Gang{
		ID: t.Gang(), Name: t.Job, Nodes: max(1, t.Count), User: t.User, Priority: t.Priority, Seq: t.ID.Place(), Spot: t.Spot, Limit: t.Limit,
	}
}

// PoolOf is p with the nodes of a compute; of is a node with the number of tasks on it. A single machine, which nobody makes or gives back,
// is shared by turns: who goes first does not depend on what runs, and nothing is stopped for others.
func PoolOf[N any](p Pool, single bool, nodes []N, of func(N) (n *berth.Node, used int)) Pool {
	p.Preempt = !single
	if single {
		p.Held = nil
	}
	p.Nodes = make([]Node, len(nodes))
	p.Starting = 0
	for i, x := range nodes {
		n, used := of(x)
		p.Nodes[i] = Node{Name: n.Name, Slots: max(1, n.Slots), Used: used, Ready: n.Usable()}
		if n.State == berth.NodePreparing {
			p.Starting++
		}
	}
	return p
}
