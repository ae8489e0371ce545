package control

import (
	"encoding/json"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// releaseTask notes the end of a task that was on a node: the node may be idle now, and what it
// cost is written down.
func (cy *cycle) releaseTask(t *berth.Task) error {
	p := cy.state.poolOf(t)
	cy.pools[p.key] = true
	p.vacate(t)
	cy.recheckLimited(p)
	if p.local {
		return cy.meterLocal(t)
	}
	if p.single() {
		return nil // a machine of somebody's own costs nothing here
	}
	n := p.node(t.Node)
	if n == nil {
		return nil
	}
	if n.used == 0 && n.State == berth.NodeRunning {
		n = p.own(n)
		n.State, n.IdleSince = berth.NodeIdle, cy.now
		cy.changeNode(n)
	}
	cy.afterVacate(p, n)
	return meter(cy.tx, string(t.ID), berth.Meter{
		Compute: t.Compute, Node: t.Node, Size: n.Size, Low: n.Low, Rate: n.Price / float64(max(1, n.Slots)), Priced: n.Priced,
		Currency: n.Currency, Slots: n.Slots,
		Job: t.Job, User: t.User, From: t.Times.Placed, To: cy.endTime(t),
	}, t.Workspace)
}

// meterLocal writes down what a task on the machine itself cost, where that has a price.
func (cy *cycle) meterLocal(t *berth.Task) error {
	v, priced := cy.c.o.Local.Meter()
	if !priced || t.Times.Placed.IsZero() {
		return nil
	}
	v.Rate /= float64(v.Slots)
	v.Job, v.User, v.From, v.To = t.Job, t.User, t.Times.Placed, cy.endTime(t)
	return meter(cy.tx, string(t.ID), v, t.Workspace)
}

// endTime is when a task that is over has ended, as far as its node can be believed.
func (cy *cycle) endTime(t *berth.Task) time.Time {
	to := t.Times.Ended
	// by the clock of its node, or by somebody who lies
	if to.IsZero() || to.Before(t.Times.Placed) || to.After(cy.now) {
		return cy.now
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
		Workspace: workspace, Kind: kindMeter, Name: name, Parent: target.NodeParent(v.Compute), CreatedBy: v.User, Body: json.RawMessage("{}"), Own: own,
	})
	if berth.CodeOf(err) == berth.Conflict {
		return nil // written before
	}
	return err
}
