package control

import (
	"slices"
	"strings"

	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
)

// limits is what limits the users of a pool.
func (cy *cycle) limits(p *pool) picture.Limits {
	return picture.Limits{
		PerUser: cy.c.o.Local.PerUser, Here: p.localTasks, Personal: cy.state.personal, Now: cy.now,
		Users: p.queue.Users, Running: func() ([]quota.Task, error) { return cy.runs(), nil },
	}
}

// runs lists what every user's tasks use of the nodes of clusters, and the instances.
func (cy *cycle) runs() []quota.Task {
	out := []quota.Task{}
	for _, p := range cy.state.pools.All() {
		if p.single() {
			continue
		}
		if p.spec.Instance() {
			for _, n := range p.nodes {
				out = append(out, quota.Task{Workspace: n.Workspace, Family: n.Family, User: n.User, Low: n.Low, VCPUs: float64(n.VCPUs)})
			}
			continue
		}
		for _, r := range p.running.All() {
			for _, name := range r.On {
				if n := p.node(name); n != nil {
					out = append(out, quota.Task{Workspace: n.Workspace, Family: n.Family, User: r.User, Low: n.Low, VCPUs: quota.PartOf(n.Node)})
				}
			}
		}
	}
	return out
}

// barReasons joins what the bars say to users who may have nothing more. When it changes, so do the
// reasons of all that wait.
func barReasons(bars map[string]sched.Bar) string {
	var all []string
	for user, b := range bars {
		if b.Nodes <= 0 {
			all = append(all, user+": "+b.Why)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// recheckLimited adds the pools that wait for a limit, because a task has ended. A pool without
// nodes has no bars: it is short of nodes instead, and the end of a task on any cluster may make
// room for it.
func (cy *cycle) recheckLimited(left *pool) {
	for k, p := range cy.state.pools.All() {
		if p.barred || (p.state.Short != "" && !left.single()) {
			cy.pools[k] = true
		}
	}
}
