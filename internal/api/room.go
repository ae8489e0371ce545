package api

import (
	"math"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/plan"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
)

// What still fits on this machine, and in the limits of a user and a workspace.

// room fills in how many nodes more a pool may have, by quota and by what the machine has, and
// whose limit that is.
func (x *snapshot) room(p *plan.Pool, user string, asks int) error {
	if p.Size == nil || p.Type() == picture.Instance || p.Size.VCPUs == 0 {
		return nil
	}
	limits, err := quota.LoadTx(x.Tx, x.s.QuotaDefault)
	if err != nil {
		return err
	}
	use, err := quota.Used(x.Tx)
	if err != nil {
		return err
	}
	vcpus, unlimited, why := limits.Room(use, x.use(p, user, asks), x.Now)
	if !unlimited {
		p.Room = min(vcpus/p.Size.VCPUs, math.MaxInt32)
		p.Bound = berth.PlanLimit{Kind: berth.LimitQuota, Whose: p.Name, Why: why}
	}
	for _, g := range p.Waiting {
		asks += g.Nodes
	}
	if p.Provider != "" {
		return nil // whose queue says when
	}
	m, err := x.Occupied()
	if err != nil {
		return err
	}
	ask := sched.AskOf(p.Name, *p.Size)
	for n := range min(asks, p.Room, max(0, p.Max-len(p.Nodes))) {
		gpus, ok, why := m.Admit(ask)
		if !ok {
			p.Room, p.Bound = n, berth.PlanLimit{Kind: berth.LimitMachine, Whose: p.Name, Why: why}
			return nil
		}
		m.Nodes = append(m.Nodes, sched.Guest{Compute: p.Name, Isolated: p.Size.Isolated, GPUs: gpus, VCPUs: p.Size.VCPUs, Memory: p.Size.Memory()})
	}
	return nil
}

// use is what some nodes of a pool would take.
func (x *snapshot) use(p *plan.Pool, user string, nodes int) quota.Use {
	return quota.Use{Workspace: x.Workspace, Family: p.Size.Family, User: user, Low: p.Low(), VCPUs: nodes * p.Size.VCPUs}
}

// fits refuses a size that this machine, if it is strict, can never give; else it warns of what it
// has too little of.
func (s *sizeService) fits(compute string, z berth.Size) (warnings []string, err error) {
	if why := s.never(compute, z); why != "" && s.machine.Strict {
		return nil, berth.Errorf(berth.Invalid, "size %s does not fit this machine: %s", z.Name, why)
	}
	return s.machine.Warnings(sched.AskOf(compute, z)), nil
}

// never is why this machine, were it empty, could not have a node of a size; "" when it could.
func (s *sizeService) never(compute string, z berth.Size) string {
	empty := s.machine
	empty.Nodes, empty.LocalTasks, empty.Reserved = nil, 0, ""
	_, _, why := empty.Admit(sched.AskOf(compute, z))
	return why
}
