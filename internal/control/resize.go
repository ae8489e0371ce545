package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/scale"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// resize gives a cluster the number of nodes it should have.
func (cy *cycle) resize(p *pool) error {
	if p.spec.Attached() {
		return cy.detach(p)
	}
	if p.local || p.spec.Instance() {
		return cy.finishDelete(p)
	}
	cy.releaseUnusable(p)
	if p.queue.Len() == 0 {
		p.exclusive = false
	}
	before := 0
	for _, n := range p.nodes {
		if n.State != berth.NodeLeaving {
			before++
		}
	}
	d, added, err := cy.decideSize(p)
	if err != nil {
		return err
	}
	for _, n := range added {
		p.nodes = append(p.nodes, &node{Node: n, edition: p.edition})
		cy.nodes[n.Name] = nodeChange{node: n, fresh: true}
		cy.plan.addNodes = append(cy.plan.addNodes, n)
	}
	for _, name := range d.Remove {
		if n := p.node(name); n != nil {
			cy.releaseNode(p, n, d.Why)
		}
	}
	p.wake = d.Wake
	cy.noteUnneeded(p, d.Unneeded)
	if d.Target <= p.spec.Min {
		cy.chargeIdleToOwner(p)
	}
	if d.Short != "" && cy.catalogue != nil { // no event says that a limit ended
		if at, ok := cy.catalogue.limits.Ends(cy.now); ok {
			p.wakeBy(at)
		}
	}
	if d.Why != "" {
		if err := cy.emitResize(p, before, d); err != nil {
			return err
		}
		p.state.Reason = d.Why
	}
	p.state.Target, p.state.Short = d.Target, d.Short
	if err := cy.saveState(p); err != nil {
		return err
	}
	return cy.finishDelete(p)
}

// noteUnneeded notes which nodes that are yet to come nobody needs, and since when.
func (cy *cycle) noteUnneeded(p *pool, names []string) {
	was := p.unneeded
	p.unneeded = nil
	for _, name := range names {
		since, known := was[name]
		if !known {
			since = cy.now
		}
		if p.unneeded == nil {
			p.unneeded = make(map[string]time.Time, len(names))
		}
		p.unneeded[name] = since
	}
}

// decideSize asks the autoscaler how many nodes a cluster should have, within what budgets, limits
// and this machine allow. added are the nodes to ask for.
func (cy *cycle) decideSize(p *pool) (d scale.Decision, added []berth.Node, err error) {
	pic, err := cy.picture(p)
	if err != nil {
		return d, nil, err
	}
	pic.Clearing = p.spec.Provider == "" && cy.reserved(p) != ""
	v := pic.Scale(&p.queue)
	d = scale.Decide(v, cy.now)
	if d.Add == 0 {
		return d, nil, nil
	}
	if added, v.Bound, err = cy.admit(p, d.Add); err != nil {
		return d, nil, err
	}
	if v.Room = len(added); v.Room < d.Add {
		d = scale.Decide(v, cy.now)
	}
	return d, added[:min(d.Add, len(added))], nil
}

// emitResize tells the world that the size of a cluster changes.
func (cy *cycle) emitResize(p *pool, before int, d scale.Decision) error {
	data, err := json.Marshal(map[string]any{"from": before, "to": d.Target})
	if err != nil {
		return err
	}
	cy.tx.Emit(berth.Event{Workspace: p.key.workspace, Subject: "computes/" + p.name, Type: berth.EventResize, Reason: d.Why, Data: data})
	return nil
}

// chargeIdleToOwner makes the creator of a cluster the user of idle nodes that only its minimum
// keeps. They must not count against a limit or a budget of the user whose job they were requested
// for.
func (cy *cycle) chargeIdleToOwner(p *pool) {
	freed := false
	for _, n := range p.nodes {
		if n.State == berth.NodeIdle && n.used == 0 && n.User != p.spec.owner {
			n = p.own(n)
			n.User = p.spec.owner
			cy.changeNode(n)
			freed = true
		}
	}
	if !freed {
		return
	}
	for k, q := range cy.state.pools.All() { // those may grow now that could not
		if k != p.key && q.state.Short != "" {
			cy.state.ownPool(k).wake = cy.now
		}
	}
}

// releaseUnusable gives back nodes that could not be made, and waits longer each time before asking
// for others.
func (cy *cycle) releaseUnusable(p *pool) {
	for _, n := range p.nodes {
		if n.State != berth.NodeUnusable {
			continue
		}
		p.fails++
		p.retry = cy.now.Add(min(time.Second<<min(p.fails, 9), 5*time.Minute))
		p.state.Errors = []string{n.Why}
		cy.releaseNode(p, n, n.Why)
	}
	for _, n := range p.nodes {
		if p.fails > 0 && n.Usable() {
			p.fails, p.retry, p.state.Errors = 0, time.Time{}, nil
		}
	}
}

// admit returns as many of the nodes a pool wants as limits and this machine allow, and why not
// more.
func (cy *cycle) admit(p *pool, want int) (nodes []berth.Node, bound string, err error) {
	if err := cy.refreshForeignNodes(); err != nil {
		return nil, "", err
	}
	cat, err := cy.loadCatalogue()
	if err != nil {
		return nil, "", err
	}
	size, ok := cat.sizes.Find(p.spec.Properties.VMSize)
	if !ok {
		return nil, fmt.Sprintf("size %s is no longer known to this server", p.spec.Properties.VMSize), nil
	}
	pic, err := cy.picture(p)
	if err != nil {
		return nil, "", err
	}
	user, room, why := cy.nextUser(cat, p, pic.Bars, size, want)
	machine := cy.machine(p)
	for range min(want, room) {
		gpus, ok, not := indices(size.GPUs), true, ""
		if p.spec.Provider == "" {
			gpus, ok, not = machine.Admit(sched.AskOf(p.name, size))
		}
		if !ok {
			return nodes, cy.waitForMachine(p, size.Isolated && len(nodes) == 0, not), nil
		}
		p.exclusive = false
		n := berth.Node{
			Name: nodeName(p.name), Workspace: p.key.workspace, Compute: p.name, Size: size.Name, Family: size.Family, Low: p.spec.Low(),
			Isolated: size.Isolated, State: berth.NodePreparing, Why: "asked for", VCPUs: size.VCPUs, Memory: size.Memory(), GPUs: gpus,
			Slots: p.spec.Slots, Created: cy.now, User: user, Provider: p.spec.Provider,
		}
		if price := rate(size, p.spec.Low()); price != nil {
			n.Price, n.Priced, n.Currency = *price, true, size.Currency
		}
		nodes = append(nodes, n)
		machine.Nodes = append(machine.Nodes, sched.GuestOf(n))
	}
	return nodes, why, nil
}

// indices are the numbers below n.
func indices(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// nextUser is for whom a pool's next nodes are made and how many that user may have: the first
// whose job waits, or the next when that one may have none. Without jobs it is the one who made the
// cluster.
func (cy *cycle) nextUser(cat *catalogue, p *pool, bars map[string]sched.Bar, size berth.Size, want int) (user string, room int, why string) {
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
		n, not := cat.room(cy, p, size, g.User, want)
		if user == "" || n > 0 {
			user, room, why = g.User, n, not
		}
		if n > 0 {
			return user, room, why
		}
	}
	if user == "" {
		user = p.spec.owner
		room, why = cat.room(cy, p, size, user, want)
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
func (cy *cycle) saveState(p *pool) error {
	moving := false
	for _, n := range p.nodes {
		moving = moving || n.State == berth.NodePreparing || n.State == berth.NodeLeaving
	}
	allocation := map[bool]string{true: "Resizing", false: "Steady"}[moving]
	if allocation != p.state.Allocation {
		p.state.Allocation, p.state.Changed = allocation, cy.now
	}
	if p.state.State == "Creating" || p.state.State == "Updating" {
		p.state.State = ""
	}
	own, err := json.Marshal(p.state)
	if err != nil || bytes.Equal(own, p.stored) {
		return err
	}
	d, err := cy.tx.Get(p.key.workspace, "computes", p.name, "")
	if err != nil {
		if berth.CodeOf(err) == berth.NotFound {
			return nil
		}
		return err
	}
	// somebody wants something of it, and the event that says so is on its way
	if !bytes.Equal(d.Own, p.stored) && len(d.Own) > 0 {
		now, err := target.State(d)
		if err != nil {
			return err
		}
		s := p.state
		now.Allocation, now.Changed, now.Target, now.Reason, now.Short, now.Errors = s.Allocation, s.Changed, s.Target, s.Reason, s.Short, s.Errors
		if own, err = json.Marshal(now); err != nil {
			return err
		}
		p.state = now
	}
	d.Own, p.stored = own, own
	return cy.tx.Save(d)
}

// finishDelete ends a compute that is being deleted, or that was made for jobs that are over, once
// nothing is left of it. Jobs that still wait for one that is being deleted are canceled.
func (cy *cycle) finishDelete(p *pool) error {
	deleting := p.state.Deleting()
	if p.single() || (!deleting && !p.state.Serverless) {
		return nil
	}
	if deleting {
		if err := cy.cancelWaiting(p); err != nil {
			return err
		}
	}
	if len(p.nodes) > 0 || p.running.Len() > 0 || p.queue.Len() > 0 || p.spec.Instance() {
		return nil
	}
	if !deleting {
		if coming, err := cy.hasIncomingJobs(p); err != nil || coming {
			return err
		}
	}
	if !deleting {
		return cy.deleteCompute(p, "removed: the jobs it was made for are over")
	}
	return cy.deleteCompute(p, "deleted: nothing is left of it")
}

// deleteCompute deletes the document of a compute of which nothing is left.
func (cy *cycle) deleteCompute(p *pool, reason string) error {
	err := cy.tx.Delete(p.key.workspace, "computes", p.name, "")
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return err
	}
	if err == nil {
		cy.tx.Emit(berth.Event{Workspace: p.key.workspace, Subject: "computes/" + p.name, Type: berth.EventResourceDel, Reason: reason})
	}
	cy.state.pools.Delete(p.key)
	return nil
}

// hasIncomingJobs reports whether a job was sent to a pool whose event has not arrived yet.
func (cy *cycle) hasIncomingJobs(p *pool) (bool, error) {
	docs, err := cy.tx.All(store.Query{Workspace: p.key.workspace, Kind: "jobs", Status: []string{string(berth.NotStarted)}})
	for _, d := range docs {
		if st, err := job.State(d); err == nil && strings.EqualFold(st.Compute, p.name) {
			return true, err
		}
	}
	return false, err
}

// cancelWaiting ends what waits for a compute that is going.
func (cy *cycle) cancelWaiting(p *pool) error {
	for id, g := range cy.state.gangs.All() {
		if g.pool != p.key {
			continue
		}
		j, err := cy.job(g.job)
		if err != nil {
			return err
		}
		cy.state.dequeue(id)
		if j == nil {
			continue
		}
		for _, tid := range g.tasks {
			if t := j.task(tid); t != nil {
				cy.endTask(t, &berth.Exit{Code: -1, Cause: "canceled", Reason: "compute " + p.name + " was deleted while the job waited for it"})
				j.updates[tid] = true
			}
		}
	}
	return nil
}
