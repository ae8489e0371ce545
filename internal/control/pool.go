package control

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
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
	running    map[string]*sched.Running
	held       map[string]int // nodes by user, for fairness
	localTasks map[string]int // of the machine itself: tasks by user

	stored []byte // its state as the store has it

	lastBounds bounds // what was told to all that wait

	barred bool // users who wait may have no more

	wake time.Time // when to look again although nothing happened
	memory
	before memory // as it was when the cycle began
}

// memory is what is known of a pool and not in the store.
type memory struct {
	exclusive      bool      // it waits for a node that must have the machine for itself
	exclusiveSince time.Time // when that began
	fails          int       // resizes that failed in a row
	retry          time.Time // nothing is asked of the provider before
}

// bounds is what keeps a pool from taking more. Reasons speak of it.
type bounds struct {
	max               int
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

// poolSpec is what a compute's document says about its pool.
type poolSpec struct {
	instance bool // its one node comes and goes by other hands
	attached bool // its one node is a machine that connects by itself
	size     string
	low      bool
	min, max int
	idle     time.Duration
	slots    int
	spread   bool
	owner    string
}

// node is a node with what is on it.
type node struct {
	berth.Node
	used int
}

func (n *node) ready() bool {
	return n.Evict == "" && (n.State == berth.NodeIdle || n.State == berth.NodeRunning)
}

// gang is the tasks of an attempt at a job that waits.
type gang struct {
	job   jobKey
	pool  poolKey
	tasks []berth.TaskID // by rank
	why   string         // what its tasks say they wait for, "" when they do not say the same
}

// specOf reads a compute's document. ok is false for a compute that has no pool of its own.
func specOf(d *store.Doc) (s poolSpec, ok bool, err error) {
	v, err := berth.ReadPool(d.Body)
	if err != nil {
		return s, false, err
	}
	s = poolSpec{
		instance: strings.EqualFold(v.ComputeType, berth.TypeInstance), attached: v.Attached(), size: v.Properties.VMSize, low: v.Low(),
		min: v.Min, max: v.Max, idle: v.Idle, slots: v.Slots, spread: v.Spread, owner: d.CreatedBy,
	}
	return s, s.instance || s.attached || strings.EqualFold(v.ComputeType, berth.TypeCluster), nil
}

func newPool(key poolKey, name string) *pool {
	return &pool{key: key, name: name, running: map[string]*sched.Running{}, held: map[string]int{}, localTasks: map[string]int{}}
}

// node is the pool's node of a name.
func (p *pool) node(name string) *node {
	if p.single() {
		return p.nodes[0]
	}
	for _, n := range p.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// view is the pool as the scheduler sees it.
func (p *pool) view(ahead int, down string) sched.Pool {
	v := sched.Pool{Name: p.name, Max: p.spec.max, Spread: p.spec.spread, Ahead: ahead, Down: down, Held: p.held, Short: p.state.Short, Preempt: !p.single()}
	v.Nodes = make([]sched.Node, len(p.nodes))
	for i, n := range p.nodes {
		v.Nodes[i] = sched.Node{Name: n.Name, Slots: n.Slots, Used: n.used, Ready: n.ready()}
		if n.State == berth.NodePreparing {
			v.Starting++
		}
	}
	return v
}

// wakeBy has the pool looked at again at a time, or before.
func (p *pool) wakeBy(at time.Time) {
	if p.wake.IsZero() || at.Before(p.wake) {
		p.wake = at
	}
}

// down is why a pool takes nothing now.
func (p *pool) down() string {
	switch {
	case p.state.Deleting():
		return "it is being deleted"
	case p.spec.attached:
		return p.state.Attached.Away(p.name)
	case p.spec.instance && len(p.nodes) == 0:
		state := "not running"
		if i := p.state.Instance; i != nil && i.State != "" {
			state = i.State
		}
		return "the instance is " + state + "; `berth compute start -n " + p.name + "` starts it"
	}
	return ""
}

// readAll makes the loop's picture of the world from the store: pools, nodes, gangs that wait and
// those that were placed. What is known of driver calls under way stays.
func (c *Control) readAll(tx *store.Tx) error {
	pools := map[poolKey]*pool{}
	lk := keyOf("", berth.LocalCompute)
	pools[lk] = newLocal(lk, berth.LocalCompute, c.here)
	c.gangs = map[string]*gang{}
	workspaces, err := tx.List(store.Query{Kind: "workspaces"})
	if err != nil {
		return err
	}
	if err := c.readLimits(tx); err != nil {
		return err
	}
	old := c.pools
	c.pools = pools
	clear(c.exhausted)
	for _, w := range workspaces {
		if err := c.readExhausted(tx, w.Name); err != nil {
			return err
		}
		docs, err := listAll(tx, store.Query{Workspace: w.Name, Kind: "computes"})
		if err != nil {
			return err
		}
		for _, d := range docs {
			if err := c.readPool(tx, d); err != nil {
				return err
			}
		}
	}
	for k, p := range old {
		if q := pools[k]; q != nil {
			q.memory = p.before
		}
	}
	return c.readTasks(tx)
}

// readTasks reads what waits and what was placed.
func (c *Control) readTasks(tx *store.Tx) error {
	tasks, err := tx.ActiveTasks()
	if err != nil {
		return err
	}
	placed := c.placed
	c.placed = map[berth.TaskID]*placement{}
	for _, t := range tasks {
		p := c.pool(t)
		if t.State == berth.TaskWaiting {
			c.enqueue(p, t)
			continue
		}
		if c.placed[t.ID] = placed[t.ID]; c.placed[t.ID] == nil {
			c.placed[t.ID] = &placement{task: *t, started: make(chan struct{}), inherited: true}
		}
		p.occupy(t)
	}
	for id, p := range placed {
		if c.placed[id] != nil {
			continue
		}
		t, err := tx.Task(id)
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if t.State == berth.TaskDone { // which is yet to be acted on
			c.placed[id] = p
			c.pool(t).occupy(t)
		}
	}
	return nil
}

// pool is the pool of a task. One whose compute is gone waits in a pool that has nothing.
func (c *Control) pool(t *berth.Task) *pool {
	k := keyOf(t.Workspace, t.Compute)
	p := c.pools[k]
	if p == nil {
		p = newPool(k, t.Compute)
		p.state.State = berth.ComputeDeleting
		c.pools[k] = p
	}
	return p
}

// readPool brings the loop's picture of one compute up to date with its document and those of its
// nodes.
func (c *Control) readPool(tx *store.Tx, d *store.Doc) error {
	spec, ok, err := specOf(d)
	if err != nil {
		c.o.Log.Error("compute not understood, and left alone", "compute", d.Name, "err", err)
	}
	if err != nil || !ok {
		return nil //nolint:nilerr // it was told, and must not hold up the others
	}
	k := keyOf(d.Workspace, d.Name)
	p := c.pools[k]
	if p == nil {
		p = newPool(k, d.Name)
		c.pools[k] = p
	}
	p.name, p.spec, p.state, p.stored = d.Name, spec, berth.ComputeState{}, d.Own
	if len(d.Own) > 0 {
		if err := json.Unmarshal(d.Own, &p.state); err != nil {
			c.o.Log.Error("state of a compute not understood; it starts anew", "compute", d.Name, "err", err)
			p.state = berth.ComputeState{}
		}
	}
	if p.target.Driver == nil {
		t, err := c.o.Targets.Of(driver.Compute{Workspace: d.Workspace, Name: d.Name, Body: d.Body})
		if berth.CodeOf(err) == berth.Unsupported {
			if p.queue.Len() == 0 && len(p.running) == 0 {
				delete(c.pools, k)
			}
			c.o.Log.Error("compute left alone", "compute", d.Name, "err", err)
			return nil
		}
		if err != nil {
			return err
		}
		p.target = c.describe(t)
	}
	if spec.attached {
		p.attached()
		return nil
	}
	docs, err := listAll(tx, store.Query{Workspace: d.Workspace, Kind: kindNode, Parent: nodeParent(d.Name)})
	if err != nil {
		return err
	}
	used := map[string]int{}
	for _, n := range p.nodes {
		used[n.Name] = n.used
	}
	p.nodes = p.nodes[:0]
	for _, nd := range docs {
		n := &node{used: used[nd.Name]}
		if err := json.Unmarshal(nd.Own, &n.Node); err != nil {
			c.o.Log.Error("node not understood, and left alone", "node", nd.Name, "err", err)
			continue
		}
		p.nodes = append(p.nodes, n)
	}
	return nil
}

// kindNode and kindMeter are documents of control's own.
const (
	kindNode  = "nodes"
	kindMeter = "meters"
)

func nodeParent(compute string) string { return strings.ToLower(compute) }

// listAll reads every document of a query, oldest first.
func listAll(tx *store.Tx, q store.Query) ([]*store.Doc, error) {
	q.Asc = true
	var out []*store.Doc
	for {
		page, err := tx.List(q)
		if err != nil {
			return nil, err
		}
		out = append(out, page...)
		if len(page) < 1000 {
			return out, nil
		}
		q.After = page[len(page)-1].ID
	}
}

// enqueue puts a waiting task into its pool's queue, with the others of its attempt.
func (c *Control) enqueue(p *pool, t *berth.Task) {
	id := t.Gang()
	g := c.gangs[id]
	if g == nil {
		g = &gang{job: jobKey{t.Workspace, t.Job}, pool: p.key, why: t.Why}
		c.gangs[id] = g
	}
	if t.Why != g.why {
		g.why = ""
	}
	g.tasks = append(g.tasks, t.ID)
	if len(g.tasks) < max(1, t.Count) {
		return
	}
	p.queue.Add(sched.Gang{
		ID: id, Name: t.Job, Nodes: max(1, t.Count), User: t.User, Priority: t.Priority, Seq: t.ID.Place(), Spot: t.Spot, Limit: t.Limit,
	})
}

// dequeue takes a gang out of its queue.
func (c *Control) dequeue(id string) {
	if g := c.gangs[id]; g != nil {
		if p := c.pools[g.pool]; p != nil {
			p.queue.Remove(id)
		}
		delete(c.gangs, id)
	}
}

// occupy notes that a task is on a node.
func (p *pool) occupy(t *berth.Task) {
	if n := p.node(t.Node); n != nil {
		n.used++
	}
	if p.local {
		p.localTasks[t.User]++
	}
	if p.single() {
		return
	}
	p.held[t.User]++
	id := t.Gang()
	r := p.running[id]
	if r == nil {
		r = &sched.Running{Gang: sched.Gang{
			ID: id, Name: t.Job, Nodes: max(1, t.Count), User: t.User, Priority: t.Priority, Spot: t.Spot, Limit: t.Limit,
		}, Since: t.Times.Placed}
		p.running[id] = r
	}
	r.On = append(r.On, t.Node)
	r.Stopping = r.Stopping || t.Stop || t.Evict
}

// vacate notes that a task is gone from its node.
func (p *pool) vacate(t *berth.Task) {
	if n := p.node(t.Node); n != nil {
		n.used--
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
	if r := p.running[id]; r != nil {
		if i := slices.Index(r.On, t.Node); i >= 0 {
			r.On = slices.Delete(r.On, i, i+1)
		}
		if len(r.On) == 0 {
			delete(p.running, id)
		}
	}
}

// gangs are what runs, in an order of its own.
func (p *pool) gangs() []sched.Running {
	if p.single() || p.queue.Len() == 0 {
		return nil
	}
	out := make([]sched.Running, 0, len(p.running))
	for _, r := range p.running {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b sched.Running) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return out
}

// schedule asks the scheduler about a pool. When its bounds have changed that concerns the reasons
// of all that wait.
func (c *Control) schedule(p *pool, ahead int, down string, fresh []string, now time.Time) []sched.Choice {
	bars := c.bars(p, now)
	p.barred = len(bars) > 0
	if b := (bounds{p.spec.max, down, p.state.Short, barReasons(bars)}); b != p.lastBounds {
		p.lastBounds = b
		fresh = slices.AppendSeq(make([]string, 0, p.queue.Len()), p.queue.IDs())
	}
	if at, ok := c.personal.Ends(now); p.barred && ok { // no event says that a limit ended
		p.wakeBy(at)
	}
	v := p.view(ahead, down)
	v.Bars = bars
	return sched.Schedule(v, &p.queue, p.gangs(), fresh, now)
}
