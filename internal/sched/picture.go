package sched

import (
	"cmp"
	"slices"

	"github.com/berthml/berth"
)

// GangOf is the gang of a task.
func GangOf(t *berth.Task) Gang {
	return Gang{
		ID: t.Gang(), Name: t.Job, Nodes: max(1, t.Count), User: t.User, Priority: t.Priority, Seq: t.ID.Place(), Spot: t.Spot, Limit: t.Limit,
		GPUs: t.GPUs,
	}
}

// With is the gang that has its nodes with one more of its tasks, which is on a node.
func (r Running) With(t *berth.Task, node string) Running {
	if len(r.On) == 0 {
		r = Running{Gang: GangOf(t), Since: t.Times.Placed}
	}
	r.On = append(slices.Clip(r.On), node)
	r.Stopping = r.Stopping || t.Stop || t.Evict
	return r
}

// SortByAge puts the gang that has had its nodes longest first.
func SortByAge(all []Running) {
	slices.SortFunc(all, func(a, b Running) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
}

// AskOf is a node of a size that a compute would like to have.
func AskOf(compute string, s berth.Size) Ask {
	return Ask{Compute: compute, VCPUs: s.VCPUs, Memory: s.Memory(), GPUs: s.GPUs, Isolated: s.Isolated}
}

// GuestOf is a node as a guest of the machine it is on.
func GuestOf(n berth.Node) Guest {
	return Guest{
		Compute: n.Compute, Isolated: n.Isolated, GPUs: n.GPUs, VCPUs: n.VCPUs, Memory: n.Memory, Idle: n.State == berth.NodeIdle,
	}
}
