package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/scale"
	"github.com/berthml/berth/internal/store"
)

// resize makes a cluster as large as it should be.
func (m *move) resize(p *pool) error {
	if p.spec.attached {
		return m.detach(p)
	}
	if p.local || p.spec.instance {
		return m.finish(p)
	}
	m.clear(p)
	if p.queue.Len() == 0 {
		p.alone = false
	}
	v := m.c.demand(p, m.now)
	unpaid, all := m.c.unpaid(p)
	switch {
	case unpaid == "":
	case all && v.Hold == "":
		v.Hold = unpaid
	default:
		v.Min = 0
	}
	if m.c.reserved(p) != "" {
		v.Idle = 0 // somebody waits for the machine to be empty
	}
	d := scale.Decide(v, m.now)
	var asks []berth.Node
	if d.Add > 0 {
		var err error
		if asks, v.Bound, err = m.admit(p, d.Add); err != nil {
			return err
		}
		if v.Room = len(asks); v.Room < d.Add {
			d = scale.Decide(v, m.now)
		}
	}
	before := len(v.Nodes)
	for _, n := range asks[:min(d.Add, len(asks))] {
		x := &node{Node: n}
		p.nodes = append(p.nodes, x)
		m.nodes[n.Name] = nodeChange{node: n, fresh: true}
		m.add = append(m.add, n)
	}
	for _, name := range d.Remove {
		if n := p.node(name); n != nil {
			m.giveBack(n, d.Why)
		}
	}
	p.wake = d.Wake
	if d.Target <= p.spec.min {
		m.keepForOwner(p)
	}
	if d.Short != "" && m.market != nil { // a limit that ends is no event
		if at, ok := m.market.limits.Ends(m.now); ok && (p.wake.IsZero() || at.Before(p.wake)) {
			p.wake = at
		}
	}
	if d.Why != "" {
		data, err := json.Marshal(map[string]any{"from": before, "to": d.Target})
		if err != nil {
			return err
		}
		m.tx.Emit(berth.Event{Workspace: p.key.workspace, Subject: "computes/" + p.name, Type: berth.EventResize, Reason: d.Why, Data: data})
		p.state.Reason = d.Why
	}
	p.state.Target, p.state.Short = d.Target, d.Short
	if err := m.saveState(p); err != nil {
		return err
	}
	return m.finish(p)
}

// keepForOwner makes idle nodes that a cluster keeps because of its minimum those of the user who made it: whoever they were made for has
// no use of them, and must not have them counted against a limit or a budget for as long as the cluster is there.
func (m *move) keepForOwner(p *pool) {
	freed := false
	for _, n := range p.nodes {
		if n.State == berth.NodeIdle && n.used == 0 && n.User != p.spec.owner {
			n.User = p.spec.owner
			m.keep(n)
			freed = true
		}
	}
	if !freed {
		return
	}
	for _, q := range m.c.pools { // those may grow now that could not
		if q != p && q.state.Short != "" {
			q.wake = m.now
		}
	}
}

// demand is the pool as the autoscaler sees it.
func (c *Control) demand(p *pool, now time.Time) scale.Pool {
	v := scale.Pool{
		Name: p.name, Min: p.spec.min, Max: p.spec.max, Idle: p.spec.idle, Slots: p.spec.slots, Room: p.spec.max, Wait: p.retry,
	}
	if p.state.Deleting() {
		v.Hold = "it is being deleted"
	}
	v.Sizes = p.queue.Sizes()
	if bars := c.bars(p, now); len(bars) > 0 {
		v.Sizes, _ = p.queue.SizesWithin(p.held, bars)
	}
	for _, n := range p.nodes {
		if n.State == berth.NodeLeaving {
			continue
		}
		x := scale.Node{
			Name: n.Name, Starting: n.State == berth.NodePreparing, Busy: n.used, Since: n.IdleSince,
			Evicted: n.State == berth.NodePreempted || n.State == berth.NodeUnusable,
		}
		if title := cost.Charged(c.usedUp[p.key.workspace], n.User); title != "" {
			x.Unpaid = title + " is used up"
		}
		v.Nodes = append(v.Nodes, x)
	}
	return v
}

// clear gives back nodes that could not be made, and waits longer each time before asking for others.
func (m *move) clear(p *pool) {
	for _, n := range p.nodes {
		if n.State != berth.NodeUnusable {
			continue
		}
		p.fails++
		p.retry = m.now.Add(min(time.Second<<min(p.fails, 9), 5*time.Minute))
		p.state.Errors = []string{n.Why}
		m.giveBack(n, n.Why)
	}
	for _, n := range p.nodes {
		if p.fails > 0 && n.ready() {
			p.fails, p.retry, p.state.Errors = 0, time.Time{}, nil
		}
	}
}

// admit finds out how many of the nodes a pool wants it may have, as limits and the machine stand, and why not more.
func (m *move) admit(p *pool, want int) (nodes []berth.Node, bound string, err error) {
	if err := m.newcomers(); err != nil {
		return nil, "", err
	}
	k, err := m.prices()
	if err != nil {
		return nil, "", err
	}
	size, ok := k.sizes.Find(p.spec.size)
	if !ok {
		return nil, fmt.Sprintf("size %s is no longer known to this server", p.spec.size), nil
	}
	user, room, why := m.asker(k, p, size, want)
	machine := m.machine(p)
	for range min(want, room) {
		ask := askFor(p.name, size)
		gpus, ok, not := machine.Admit(ask)
		if !ok {
			return nodes, m.wait(p, size.Isolated && len(nodes) == 0, not), nil
		}
		p.alone = false
		n := berth.Node{
			Name: nodeName(p.name), Workspace: p.key.workspace, Compute: p.name, Size: size.Name, Family: size.Family, Low: p.spec.low,
			Isolated: size.Isolated, State: berth.NodePreparing, Why: "asked for", VCPUs: size.VCPUs, Memory: size.Memory(), GPUs: gpus,
			Slots: p.spec.slots, Created: m.now, User: user,
		}
		if price := rate(size, p.spec.low); price != nil {
			n.Price, n.Priced, n.Currency = *price, true, size.Currency
		}
		nodes = append(nodes, n)
		machine.Nodes = append(machine.Nodes, guest(n))
	}
	return nodes, why, nil
}

// asker is for whom a pool's next nodes are made and how many that user may have: the first whose job waits, or the next when that one
// may have none. Without jobs it is the one who made the cluster.
func (m *move) asker(k *market, p *pool, size berth.Size, want int) (user string, room int, why string) {
	bars := m.c.bars(p, m.now)
	tried, users := map[string]bool{}, len(p.queue.Users())
	for g := range p.queue.All(p.held) {
		if len(tried) == users {
			break
		}
		bar, limited := bars[g.User]
		if tried[g.User] {
			continue
		}
		if tried[g.User] = true; limited && bar.Nodes < g.Nodes {
			continue
		}
		n, not := k.room(m, p, size, g.User, want)
		if user == "" || n > 0 {
			user, room, why = g.User, n, not
		}
		if n > 0 {
			return user, room, why
		}
	}
	if user == "" {
		user = p.spec.owner
		room, why = k.room(m, p, size, user, want)
	}
	return user, room, why
}

// nodeName is a name that is good as a file and as a host, and that no other node has.
func nodeName(compute string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, compute)
	return strings.Trim(name[:min(len(name), 24)], "-") + "-" + berth.NewGUID()[:8]
}

// saveState writes what has changed of a compute's own state.
func (m *move) saveState(p *pool) error {
	moving := false
	for _, n := range p.nodes {
		moving = moving || n.State == berth.NodePreparing || n.State == berth.NodeLeaving
	}
	allocation := map[bool]string{true: "Resizing", false: "Steady"}[moving]
	if allocation != p.state.Allocation {
		p.state.Allocation, p.state.Changed = allocation, m.now
	}
	if p.state.State == "Creating" || p.state.State == "Updating" {
		p.state.State = ""
	}
	own, err := json.Marshal(p.state)
	if err != nil || bytes.Equal(own, p.own) {
		return err
	}
	d, err := m.tx.Get(p.key.workspace, "computes", p.name, "")
	if err != nil {
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		return err
	}
	if !bytes.Equal(d.Own, p.own) && len(d.Own) > 0 { // somebody wants something of it, and the event that says so is on its way
		var now berth.ComputeState
		if err := json.Unmarshal(d.Own, &now); err != nil {
			return err
		}
		s := p.state
		now.Allocation, now.Changed, now.Target, now.Reason, now.Short, now.Errors = s.Allocation, s.Changed, s.Target, s.Reason, s.Short, s.Errors
		if own, err = json.Marshal(now); err != nil {
			return err
		}
		p.state = now
	}
	d.Own, p.own = own, own
	return m.tx.Save(d)
}

// finish ends a compute that is being deleted, or that was made for jobs that are over, once nothing is left of it. Jobs that still
// wait for one that is being deleted are canceled.
func (m *move) finish(p *pool) error {
	deleting := p.state.Deleting()
	if p.single() || (!deleting && !p.state.Serverless) {
		return nil
	}
	if deleting {
		if err := m.refuse(p); err != nil {
			return err
		}
	}
	if len(p.nodes) > 0 || len(p.running) > 0 || p.queue.Len() > 0 || p.spec.instance {
		return nil
	}
	if !deleting {
		if coming, err := m.coming(p); err != nil || coming {
			return err
		}
	}
	if !deleting {
		return m.erase(p, "removed: the jobs it was made for are over")
	}
	return m.erase(p, "deleted: nothing is left of it")
}

// erase deletes the document of a compute of which nothing is left.
func (m *move) erase(p *pool, reason string) error {
	err := m.tx.Delete(p.key.workspace, "computes", p.name, "")
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return err
	}
	if err == nil {
		m.tx.Emit(berth.Event{Workspace: p.key.workspace, Subject: "computes/" + p.name, Type: berth.EventResourceDel, Reason: reason})
	}
	delete(m.c.pools, p.key)
	return nil
}

// coming says whether a job was sent to a pool that the loop has not been told of yet.
func (m *move) coming(p *pool) (bool, error) {
	docs, err := m.tx.All(store.Query{Workspace: p.key.workspace, Kind: "jobs", Status: []string{string(berth.NotStarted)}})
	for _, d := range docs {
		var st berth.JobState
		if json.Unmarshal(d.Own, &st) == nil && strings.EqualFold(st.Compute, p.name) {
			return true, err
		}
	}
	return false, err
}

// refuse ends what waits for a compute that is going.
func (m *move) refuse(p *pool) error {
	for id, g := range m.c.gangs {
		if g.pool != p.key {
			continue
		}
		j, err := m.job(g.job)
		if err != nil {
			return err
		}
		m.c.dequeue(id)
		if j == nil {
			continue
		}
		for _, tid := range g.tasks {
			if t := j.task(tid); t != nil {
				m.endTask(t, &berth.Exit{Code: -1, Cause: "canceled", Reason: "compute " + p.name + " was deleted while the job waited for it"})
				j.dirty[tid] = true
			}
		}
	}
	return nil
}
