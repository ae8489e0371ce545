package control

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/overlay"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/sched"
)

// A pool is a compute as the loop sees it: the nodes tasks run on and the gangs that wait for them.
// The machine itself is one, with a single node that is always there, and so is each machine that
// is attached.
type pool struct {
	key   poolKey
	name  string // as first written
	local bool   // it is the machine itself
	spec  poolSpec
	// target is where its tasks run.
	target Target
	state  berth.ComputeState
	nodes  []*node
	queue  sched.Queue
	// running are the gangs that were placed and have not ended.
	running    overlay.Map[string, sched.Running]
	held       map[string]int // nodes by user, for fairness
	localTasks map[string]int // of the machine itself: tasks by user

	stored     []byte    // its state as the store has it
	lastBounds bounds    // what the reasons of all that wait speak of
	barred     bool      // users who wait may have no more
	wake       time.Time // when to look again although nothing happened
	memory

	from    *pool // what a cycle's copy was copied from
	edition int   // of copies; nodes of the same are the pool's own, others it shares
}

// memory is what is known of a pool and not in the store.
type memory struct {
	exclusive      bool      // it waits for a node that must have the machine for itself
	exclusiveSince time.Time // when that began
	fails          int       // resizes that failed in a row
	retry          time.Time // nothing is asked of the provider before
	// unneeded is since when nobody needs nodes that are yet to come. It is replaced, not changed.
	unneeded map[string]time.Time
}

// bounds is what keeps a pool from taking more. Reasons speak of it.
type bounds struct {
	max, gpus         int // gpus: of the node that has the most
	down, short, bars string
}

// poolKey names a pool. The machine's has no workspace: all share it.
type poolKey struct{ workspace, compute string }

func keyOf(workspace, compute string) poolKey {
	if berth.IsLocal(compute) {
		return poolKey{compute: berth.LocalCompute}
	}
	return poolKey{workspace, strings.ToLower(compute)}
}

// poolSpec is what a compute's document says about its pool, and who wrote it.
type poolSpec struct {
	berth.PoolSpec
	owner string
}

// node is a node with what is on it.
type node struct {
	berth.Node
	used    int
	holders sched.Holders // of GPUs, of one of several machines
	edition int           // of the pool that may change it
}

func newPool(key poolKey, name string) *pool {
	return &pool{key: key, name: name, held: map[string]int{}, localTasks: map[string]int{}}
}

// newFork is a copy of the pool for a cycle to change. It shares what is large until that changes.
func (p *pool) newFork() *pool {
	f := *p
	f.from, f.edition = p, p.edition+1
	f.nodes = slices.Clone(p.nodes)
	f.queue, f.running = p.queue.Fork(), p.running.Fork()
	f.held, f.localTasks = maps.Clone(p.held), maps.Clone(p.localTasks)
	return &f
}

// join ends what the copy shares with the pool it was copied from, which must not be used any more.
func (p *pool) join() {
	if p.from == nil {
		return
	}
	p.from.queue.Join(&p.queue)
	p.from.running.Join(&p.running)
	p.queue, p.running, p.from = p.from.queue, p.from.running, nil
}

// own is a node of the pool, to be changed. The one that was passed must not be used any more.
func (p *pool) own(n *node) *node {
	if n.edition == p.edition {
		return n
	}
	c := *n
	c.edition = p.edition
	p.nodes[slices.Index(p.nodes, n)] = &c
	return &c
}

// ownNode is the pool's node of a name, to be changed.
func (p *pool) ownNode(name string) *node {
	n := p.node(name)
	if n == nil {
		return nil
	}
	return p.own(n)
}

// node is the pool's node of a name.
func (p *pool) node(name string) *node {
	if p.single() && !p.several() {
		return p.nodes[0]
	}
	for _, n := range p.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// picture describes the pool for the scheduler and the autoscaler.
func (cy *cycle) picture(p *pool) (picture.Pool, error) {
	v := picture.Pool{
		Name: p.name, Owner: p.spec.owner, PoolSpec: p.spec.PoolSpec, State: p.state, Nodes: make([]picture.Node, len(p.nodes)),
		Held: p.held, Short: p.state.Short, Retry: p.retry, Unneeded: p.unneeded,
	}
	for i, n := range p.nodes {
		v.Nodes[i] = picture.Node{Node: &n.Node, Used: n.used, Holders: n.holders}
	}
	v.Exhausted, _ = cy.state.exhausted.Get(p.key.workspace)
	err := v.Bar(p.key.workspace, cy.limits(p))
	// Replicas are first in line, and take slots of their own. Where a user is limited that may be
	// the user of a replica, whose slot a job would get: then they wait for one as jobs do.
	if p.single() && len(v.Bars) == 0 {
		v.Replicas = p.queue.At(berth.ServePriority)
	}
	return v, err
}

// wakeBy has the pool looked at again at a time, or before.
func (p *pool) wakeBy(at time.Time) {
	if p.wake.IsZero() || at.Before(p.wake) {
		p.wake = at
	}
}

// occupy counts a task on its node.
func (p *pool) occupy(t *berth.Task) {
	if n := p.ownNode(t.Node); n != nil {
		if !(t.Serves && p.single()) {
			n.used++
		}
		if p.several() {
			n.holders = n.holders.With(sched.GangOf(t))
		}
	}
	if p.local {
		p.localTasks[t.User]++
	}
	if p.single() {
		return
	}
	p.held[t.User]++
	r, _ := p.running.Get(t.Gang())
	p.running.Set(t.Gang(), r.With(t, t.Node))
}

// vacate removes a task from its node.
func (p *pool) vacate(t *berth.Task) {
	if n := p.ownNode(t.Node); n != nil {
		if !(t.Serves && p.single()) {
			n.used--
		}
		n.holders = n.holders.Without(t.Gang())
	}
	if p.local && p.localTasks[t.User] <= 1 {
		delete(p.localTasks, t.User)
	} else if p.local {
		p.localTasks[t.User]--
	}
	if p.single() {
		return
	}
	if p.held[t.User]--; p.held[t.User] <= 0 {
		delete(p.held, t.User)
	}
	id := t.Gang()
	r, ok := p.running.Get(id)
	if !ok {
		return
	}
	if i := slices.Index(r.On, t.Node); i >= 0 {
		r.On = slices.Delete(slices.Clone(r.On), i, i+1)
	}
	if len(r.On) == 0 {
		p.running.Delete(id)
		return
	}
	p.running.Set(id, r)
}

// stopping notes that a gang was asked to stop.
func (p *pool) stopping(id string) {
	if r, ok := p.running.Get(id); ok {
		r.Stopping = true
		p.running.Set(id, r)
	}
}

// gangs lists what runs, oldest first.
func (p *pool) gangs() []sched.Running {
	if p.single() || p.queue.Len() == 0 {
		return nil
	}
	out := make([]sched.Running, 0, p.running.Len())
	for _, r := range p.running.All() {
		out = append(out, r)
	}
	sched.SortByAge(out)
	return out
}

// schedule asks the scheduler about a pool. When its bounds have changed, the reasons of all that
// wait are renewed.
func (cy *cycle) schedule(p *pool, v sched.Pool, fresh []string) []sched.Choice {
	p.barred = len(v.Bars) > 0
	gpus := 0
	for i := range v.Nodes {
		gpus = max(gpus, v.Nodes[i].GPUs)
	}
	if b := (bounds{v.Max, gpus, v.Down, v.Short, barReasons(v.Bars)}); b != p.lastBounds {
		p.lastBounds = b
		fresh = slices.AppendSeq(make([]string, 0, p.queue.Len()), p.queue.IDs())
	}
	if at, ok := cy.state.personal.Ends(cy.now); p.barred && ok { // no event says that a limit ended
		p.wakeBy(at)
	}
	return sched.Schedule(v, &p.queue, p.gangs(), fresh, cy.now)
}
