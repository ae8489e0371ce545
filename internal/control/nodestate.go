package control

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// nodeChange is a node to write.
type nodeChange struct {
	node  berth.Node
	fresh bool
	drill bool // a drill on it is over
	was   berth.NodeState
}

// refresh reads a compute and its nodes again, because somebody wrote them.
func (m *move) refresh(k poolKey) error {
	if k.workspace == "" {
		m.pools[k] = true
		return nil
	}
	d, err := m.tx.Get(k.workspace, "computes", k.compute, "")
	if berth.CodeOf(err) == berth.NotFound {
		if p := m.c.pools[k]; p != nil && len(p.nodes) == 0 && p.queue.Len() == 0 && len(p.running) == 0 {
			delete(m.c.pools, k)
		}
		return nil
	}
	if err != nil {
		return err
	}
	was := ""
	if p := m.c.pools[k]; p != nil {
		was = p.connected()
	}
	if err := m.c.readPool(m.tx, d); err != nil {
		return err
	}
	p := m.c.pools[k]
	if p == nil {
		return nil
	}
	if now := p.connected(); now != was && now != "" {
		m.back = append(m.back, p.target.Driver)
	}
	m.pools[k] = true
	return m.takeAway(p)
}

// refreshNodes reads some nodes of a compute again, because somebody wrote them: a burst brings hundreds of nodes, each with an event of
// its own.
func (m *move) refreshNodes(k poolKey, names map[string]bool) error {
	p := m.c.pools[k]
	if p == nil || p.spec.instance {
		return m.refresh(k)
	}
	for name := range names {
		i := slices.IndexFunc(p.nodes, func(n *node) bool { return n.Name == name })
		d, err := m.tx.Get(k.workspace, kindNode, name, "")
		switch {
		case berth.CodeOf(err) == berth.NotFound && i < 0:
		case berth.CodeOf(err) == berth.NotFound:
			p.nodes = slices.Delete(p.nodes, i, i+1)
		case err != nil:
			return err
		default:
			n := new(node)
			if err := json.Unmarshal(d.Own, &n.Node); err != nil {
				m.c.o.Log.Error("node not understood, and left alone", "node", name, "err", err)
				continue
			}
			if i < 0 {
				p.nodes = append(p.nodes, n)
				continue
			}
			n.used = p.nodes[i].used
			p.nodes[i] = n
		}
	}
	if len(p.nodes) == 0 { // nothing may be left of the compute
		return m.refresh(k)
	}
	m.pools[k] = true
	return m.takeAway(p)
}

// takeAway stops the tasks on nodes that are being reclaimed.
func (m *move) takeAway(p *pool) error {
	for _, n := range p.nodes {
		if n.Evict == "" || n.State == berth.NodeLeaving {
			continue
		}
		if n.State != berth.NodePreempted {
			n.State = berth.NodePreempted
			m.keep(n)
		}
		for _, pl := range m.c.placed {
			if pl.task.Node == n.Name {
				if err := m.evictTask(&pl.task, n.Why); err != nil {
					return err
				}
			}
		}
		m.vacated(n)
	}
	return nil
}

// vacated goes on with a node that is being taken away once nothing is on it.
func (m *move) vacated(n *node) {
	switch {
	case n.used > 0 || n.State != berth.NodePreempted:
	case n.Evict == berth.EvictSimulate:
		n.State, n.Evict, n.Why, n.IdleSince = berth.NodeIdle, "", "the drill is over", m.now
		m.keep(n)
		ch := m.nodes[n.Name]
		ch.drill = true
		m.nodes[n.Name] = ch
	default:
		m.giveBack(n, n.Why)
	}
}

// giveBack lets a node go.
func (m *move) giveBack(n *node, why string) {
	n.State, n.Why = berth.NodeLeaving, why
	m.keep(n)
	m.remove = append(m.remove, n.Node)
}

// keep notes that a node has to be written.
func (m *move) keep(n *node) {
	ch := m.nodes[n.Name]
	ch.node = n.Node
	m.nodes[n.Name] = ch
}

func (m *move) saveNodes() error {
	for name, ch := range m.nodes {
		if !ch.fresh {
			if err := m.heed(&ch); berth.CodeOf(err) == berth.NotFound {
				continue // gone meanwhile
			} else if err != nil {
				return err
			}
		}
		if ch.was != ch.node.State {
			m.moved = append(m.moved, [2]berth.NodeState{ch.was, ch.node.State})
		}
		own, err := json.Marshal(ch.node)
		if err != nil {
			return err
		}
		d := &store.Doc{
			Workspace: ch.node.Workspace, Kind: kindNode, Name: name, Parent: nodeParent(ch.node.Compute), Status: string(ch.node.State),
			CreatedBy: ch.node.User, Body: json.RawMessage("{}"), Own: own,
		}
		if ch.fresh {
			err = m.tx.Insert(d)
		} else {
			err = m.tx.Save(d)
		}
		if err != nil {
			return err
		}
		if p := m.c.pools[keyOf(ch.node.Workspace, ch.node.Compute)]; p != nil && p.spec.instance { // whose own loop wants to know
			data, err := json.Marshal(map[string]any{"node": name, "state": ch.node.State})
			if err != nil {
				return err
			}
			m.tx.Emit(berth.Event{Workspace: ch.node.Workspace, Subject: "computes/" + ch.node.Compute, Type: berth.EventNode, Reason: ch.node.Says(), Data: data})
		}
	}
	return nil
}

// heed keeps what others wrote about a node since the loop read it. Their event is on its way, and the loop acts on it then.
func (m *move) heed(ch *nodeChange) error {
	d, err := m.tx.Get(ch.node.Workspace, kindNode, ch.node.Name, "")
	if err != nil {
		return err
	}
	var now berth.Node
	if err := json.Unmarshal(d.Own, &now); err != nil {
		return err
	}
	ch.was = now.State
	if now.Evict != "" && ch.node.Evict == "" && !ch.drill {
		ch.node.Evict, ch.node.Why = now.Evict, now.Why
	}
	if now.State == berth.NodeLeaving {
		ch.node.State, ch.node.Why = now.State, now.Why
	}
	if ch.node.Ready.IsZero() {
		ch.node.Ready = now.Ready
	}
	return nil
}

// busy notes that a node has a task.
func (m *move) busy(p *pool, name string) {
	if p.single() {
		return
	}
	if n := p.node(name); n != nil && n.State == berth.NodeIdle {
		n.State, n.Why, n.IdleSince = berth.NodeRunning, "", time.Time{}
		m.keep(n)
	}
}

// release notes the end of a task that was on a node: the node may be idle now, and what it cost is written down.
func (m *move) release(t *berth.Task) error {
	p := m.c.pool(t)
	m.pools[p.key] = true
	p.leave(t)
	m.lookAgain(p)
	if p.local {
		return m.meterLocal(t)
	}
	if p.single() {
		return nil // a machine of somebody's own costs nothing here
	}
	n := p.node(t.Node)
	if n == nil {
		return nil
	}
	if n.used == 0 && n.State == berth.NodeRunning {
		n.State, n.IdleSince = berth.NodeIdle, m.now
		m.keep(n)
	}
	m.vacated(n)
	return meter(m.tx, string(t.ID), berth.Meter{
		Compute: t.Compute, Node: t.Node, Size: n.Size, Low: n.Low, Rate: n.Price / float64(max(1, n.Slots)), Priced: n.Priced,
		Currency: n.Currency, Slots: n.Slots,
		Job: t.Job, User: t.User, From: t.Times.Placed, To: m.end(t),
	}, t.Workspace)
}

// meterLocal writes down what a task on the machine itself cost, where that has a price.
func (m *move) meterLocal(t *berth.Task) error {
	v, priced := m.c.o.Local.Meter()
	if !priced || t.Times.Placed.IsZero() {
		return nil
	}
	v.Rate /= float64(v.Slots)
	v.Job, v.User, v.From, v.To = t.Job, t.User, t.Times.Placed, m.end(t)
	return meter(m.tx, string(t.ID), v, t.Workspace)
}

// end is when a task that is over has ended, as far as its node can be believed.
func (m *move) end(t *berth.Task) time.Time {
	to := t.Times.Ended
	if to.IsZero() || to.Before(t.Times.Placed) || to.After(m.now) { // by the clock of its node, or by somebody who lies
		return m.now
	}
	return to
}

// meter keeps what a stretch of a node's time cost.
func meter(tx *store.Tx, name string, v berth.Meter, workspace string) error {
	if v.To.Before(v.From) { // the clock may have been set back while no server ran
		v.To = v.From
	}
	own, err := json.Marshal(v)
	if err != nil {
		return err
	}
	err = tx.Insert(&store.Doc{
		Workspace: workspace, Kind: kindMeter, Name: name, Parent: nodeParent(v.Compute), CreatedBy: v.User, Body: json.RawMessage("{}"), Own: own,
	})
	if berth.CodeOf(err) == berth.Conflict {
		return nil // written before
	}
	return err
}
