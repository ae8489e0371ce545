package control

import (
	"slices"
	"strings"

	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sched"
)

// bars returns, for the limited users who wait for a pool, how many more tasks each may have.
func (cy *cycle) bars(p *pool) map[string]sched.Bar {
	if p.local && cy.c.o.Local.PerUser > 0 && p.queue.Len() > 0 {
		out := map[string]sched.Bar{}
		for _, user := range p.queue.Users() {
			out[user] = sched.LocalBar(cy.c.o.Local.PerUser, p.localTasks[user])
		}
		return out
	}
	if p.single() || p.spec.Instance() || p.queue.Len() == 0 || len(cy.state.personal.All) == 0 || len(p.nodes) == 0 {
		// an instance counts as a whole, whether jobs are on it or not; and a pool without nodes
		// grows by quota
		return nil
	}
	n := p.nodes[0]
	var running []quota.Task
	var out map[string]sched.Bar
	for _, user := range p.queue.Users() {
		ask := quota.Task{Workspace: p.key.workspace, Family: n.Family, User: user, Low: n.Low, VCPUs: part(n)}
		if running == nil {
			running = cy.runs()
		}
		if tasks, unlimited, why := cy.state.personal.Left(running, ask, cy.now); !unlimited {
			if out == nil {
				out = map[string]sched.Bar{}
			}
			out[user] = sched.Bar{Nodes: tasks, Why: why}
		}
	}
	return out
}

// part is what a task has of a node.
func part(n *node) float64 { return float64(n.VCPUs) / float64(max(1, n.Slots)) }

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
					out = append(out, quota.Task{Workspace: n.Workspace, Family: n.Family, User: r.User, Low: n.Low, VCPUs: part(n)})
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
