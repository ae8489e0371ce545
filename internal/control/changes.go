package control

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// changes is what a cycle is to look at.
type changes struct {
	jobs  map[jobKey]bool
	pools map[poolKey]bool            // to be read again, and decided about
	nodes map[poolKey]map[string]bool // to be read again, and their pools decided about
	due   []poolKey                   // to be decided about
	// budgets are workspaces whose budgets are to be read again, and their pools decided about.
	budgets map[string]bool
	limits  bool // the limits of users are to be read again
	clock   bool // the clock was set
	reload  bool // everything is to be read again
}

func newChanges() changes {
	return changes{jobs: map[jobKey]bool{}, pools: map[poolKey]bool{}, nodes: map[poolKey]map[string]bool{}}
}

func (ch *changes) empty() bool {
	return len(ch.jobs)+len(ch.pools)+len(ch.nodes)+len(ch.due)+len(ch.budgets) == 0 && !ch.limits && !ch.clock
}

// collectAll is what a batch of events changed, and those that came meanwhile: one commit for all.
func (c *Control) collectAll(batch []berth.Event, more <-chan []berth.Event) changes {
	ch := newChanges()
	for {
		c.collect(&ch, batch)
		select {
		case batch = <-more:
		default:
			return ch
		}
	}
}

// collect adds the jobs and pools whose next step may have changed. The loop's own events about
// jobs and sizes are no reason.
func (c *Control) collect(ch *changes, batch []berth.Event) {
	room := false
	for _, e := range batch {
		switch e.Type {
		case berth.EventJobCreated, berth.EventJobCancel, berth.EventTaskState, berth.EventTaskPhase, berth.EventJobProgress, berth.EventJobService, berth.EventClock:
			ch.clock = ch.clock || e.Type == berth.EventClock
			if name, ok := strings.CutPrefix(e.Subject, "jobs/"); ok {
				ch.jobs[jobKey{e.Workspace, name}] = true
			}
		case berth.EventResourcePut, berth.EventResourceDel, berth.EventComputes, berth.EventCompute, berth.EventNode:
			name, ok := strings.CutPrefix(e.Subject, "computes/")
			if !ok { // a size may exist again, or need no approval any more
				room = room || strings.HasPrefix(e.Subject, "sizes/")
				continue
			}
			if e.Type != berth.EventNode {
				ch.pools[keyOf(e.Workspace, name)] = true
				continue
			}
			ch.addNode(keyOf(e.Workspace, name), e.Data)
			room = true // what was full may not be so any more
		case berth.EventQuota:
			room, ch.limits = true, true
		case berth.EventBudget, berth.EventBudgetExhausted, berth.EventBudgetRenewed:
			if ch.budgets == nil {
				ch.budgets = map[string]bool{}
			}
			ch.budgets[e.Workspace] = true
		}
	}
	if room {
		ch.due = append(ch.due, c.shortPools()...)
	}
}

// addNode notes that a node changed, as the data of its event say.
func (ch *changes) addNode(k poolKey, data json.RawMessage) {
	var v struct{ Node string }
	if json.Unmarshal(data, &v) != nil || v.Node == "" {
		ch.pools[k] = true
		return
	}
	if ch.nodes[k] == nil {
		ch.nodes[k] = map[string]bool{}
	}
	ch.nodes[k][v.Node] = true
}

// shortPools are the pools that have fewer nodes than they want, and this machine's own.
func (c *Control) shortPools() (out []poolKey) {
	for k, p := range c.state.pools.All() {
		if p.local || p.state.Short != "" || p.exclusive || p.barred {
			out = append(out, k)
		}
	}
	return out
}

// alarm rings when the first pool or job has to be looked at although nothing happened.
func (c *Control) alarm() (ring <-chan time.Time, off func()) {
	var first time.Time
	for _, p := range c.state.pools.All() {
		if !p.wake.IsZero() && (first.IsZero() || p.wake.Before(first)) {
			first = p.wake
		}
	}
	for _, at := range c.revisit {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if first.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(max(0, first.Sub(c.o.DB.Now())))
	return t.C, func() { t.Stop() }
}

// duePools are the pools whose time has come.
func (c *Control) duePools(now time.Time) (out []poolKey) {
	for k, p := range c.state.pools.All() {
		if !p.wake.IsZero() && !p.wake.After(now) {
			out = append(out, k)
		}
	}
	return out
}

// dueJobs are the jobs whose time has come.
func (c *Control) dueJobs(now time.Time) map[jobKey]bool {
	out := map[jobKey]bool{}
	for k, at := range c.revisit {
		if !at.After(now) {
			out[k] = true
			delete(c.revisit, k)
		}
	}
	return out
}
