package control

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/target"
)

// nodeChange is a node to write.
type nodeChange struct {
	node  berth.Node
	fresh bool
	drill bool // a drill on it is over
	was   berth.NodeState
}

// refreshPool reads a compute and its nodes again, because somebody wrote them.
func (cy *cycle) refreshPool(k poolKey) error {
	if k.workspace == "" {
		cy.pools[k] = true
		return nil
	}
	d, err := cy.tx.Get(k.workspace, "computes", k.compute, "")
	if berth.CodeOf(err) == berth.NotFound {
		if p := cy.state.pool(k); p != nil && len(p.nodes) == 0 && p.queue.Len() == 0 && p.running.Len() == 0 {
			cy.state.pools.Delete(k)
		}
		return nil
	}
	if err != nil {
		return err
	}
	was := ""
	if p := cy.state.pool(k); p != nil {
		was = p.connected()
	}
	if err := cy.c.readPool(cy.tx, cy.state, d); err != nil {
		return err
	}
	p := cy.state.ownPool(k)
	if p == nil {
		return nil
	}
	if now := p.connected(); now != was && now != "" {
		cy.plan.returned = append(cy.plan.returned, p.target.Driver)
	}
	cy.pools[k] = true
	return cy.evictReclaimed(p)
}

// refreshNodes reads some nodes of a compute again, because somebody wrote them: a burst brings
// hundreds of nodes, each with an event of its own.
func (cy *cycle) refreshNodes(k poolKey, names map[string]bool) error {
	p := cy.state.ownPool(k)
	if p == nil || p.spec.Instance() {
		return cy.refreshPool(k)
	}
	for name := range names {
		i := slices.IndexFunc(p.nodes, func(n *node) bool { return n.Name == name })
		d, err := cy.tx.Get(k.workspace, target.KindNode, name, "")
		switch {
		case berth.CodeOf(err) == berth.NotFound && i < 0:
		case berth.CodeOf(err) == berth.NotFound:
			p.nodes = slices.Delete(p.nodes, i, i+1)
		case err != nil:
			return err
		default:
			n := &node{edition: p.edition}
			if n.Node, err = target.Node(d); err != nil {
				cy.state.problems = append(cy.state.problems, problem{"node cannot be read, and is left alone", "node", name, err})
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
		return cy.refreshPool(k)
	}
	cy.pools[k] = true
	return cy.evictReclaimed(p)
}

// evictReclaimed stops the tasks on nodes that are being reclaimed.
func (cy *cycle) evictReclaimed(p *pool) error {
	for _, n := range p.nodes {
		if n.Evict == "" || n.State == berth.NodeLeaving {
			continue
		}
		if n.State != berth.NodePreempted {
			n = p.own(n)
			n.State = berth.NodePreempted
			cy.changeNode(n)
		}
		for _, pl := range cy.state.placed {
			if pl.task.Node == n.Name {
				if err := cy.evictTask(&pl.task, n.Why); err != nil {
					return err
				}
			}
		}
		cy.afterVacate(p, n)
	}
	return nil
}

// afterVacate goes on with a node that is being taken away once nothing is on it.
func (cy *cycle) afterVacate(p *pool, n *node) {
	switch {
	case n.used > 0 || n.State != berth.NodePreempted:
	case n.Evict == berth.EvictSimulate:
		n = p.own(n)
		n.State, n.Evict, n.Why, n.IdleSince = berth.NodeIdle, "", "the drill is over", cy.now
		cy.changeNode(n)
		ch := cy.nodes[n.Name]
		ch.drill = true
		cy.nodes[n.Name] = ch
	default:
		cy.releaseNode(p, n, n.Why)
	}
}

// releaseNode gives a node back to its provider.
func (cy *cycle) releaseNode(p *pool, n *node, why string) {
	n = p.own(n)
	n.State, n.Why = berth.NodeLeaving, why
	cy.changeNode(n)
	cy.plan.removeNodes = append(cy.plan.removeNodes, n.Node)
}

// changeNode marks a node to be written.
func (cy *cycle) changeNode(n *node) {
	ch := cy.nodes[n.Name]
	ch.node = n.Node
	cy.nodes[n.Name] = ch
}

// saveNodes writes the nodes that changed. New ones are written in the order in which their pools
// have them: it is the order in which others read them.
func (cy *cycle) saveNodes() error {
	for _, n := range cy.plan.addNodes {
		if err := cy.saveNode(n.Name, cy.nodes[n.Name]); err != nil {
			return err
		}
	}
	for name, ch := range cy.nodes {
		if ch.fresh {
			continue
		}
		if err := cy.saveNode(name, ch); err != nil {
			return err
		}
	}
	return nil
}

// saveNode writes a node.
func (cy *cycle) saveNode(name string, ch nodeChange) error {
	if !ch.fresh {
		if err := cy.mergeConcurrent(&ch); berth.CodeOf(err) == berth.NotFound {
			return nil // gone meanwhile
		} else if err != nil {
			return err
		}
	}
	if ch.was != ch.node.State {
		cy.plan.nodeMoves = append(cy.plan.nodeMoves, [2]berth.NodeState{ch.was, ch.node.State})
	}
	d, err := target.NewNode(ch.node)
	if err != nil {
		return err
	}
	if ch.fresh {
		err = cy.tx.Insert(d)
	} else {
		err = cy.tx.Save(d)
	}
	if err != nil {
		return err
	}
	// whose own loop wants to know
	if p := cy.state.pool(keyOf(ch.node.Workspace, ch.node.Compute)); p != nil && p.spec.Instance() {
		data, err := json.Marshal(map[string]any{"node": name, "state": ch.node.State})
		if err != nil {
			return err
		}
		cy.tx.Emit(berth.Event{Workspace: ch.node.Workspace, Subject: "computes/" + ch.node.Compute, Type: berth.EventNode, Reason: ch.node.Says(), Data: data})
	}
	return nil
}

// mergeConcurrent keeps what others wrote about a node since the loop read it. Their event will
// arrive, and the loop acts on it then.
func (cy *cycle) mergeConcurrent(ch *nodeChange) error {
	_, now, err := target.LoadNode(cy.tx, ch.node.Workspace, ch.node.Name)
	if err != nil {
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

// markBusy marks a node as running.
func (cy *cycle) markBusy(p *pool, name string) {
	if p.single() {
		return
	}
	if n := p.node(name); n != nil && n.State == berth.NodeIdle {
		n = p.own(n)
		n.State, n.Why, n.IdleSince = berth.NodeRunning, "", time.Time{}
		cy.changeNode(n)
	}
}
