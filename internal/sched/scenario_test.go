package sched_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/sched"
)

// scenario is everything one call of Schedule is told.
type scenario struct {
	pool    sched.Pool
	gangs   map[string]sched.Gang
	running []sched.Running
	fresh   []string
}

func (w scenario) queue() *sched.Queue {
	q := &sched.Queue{}
	for _, g := range w.gangs { // in any order
		q.Add(g)
	}
	return q
}

func (w scenario) schedule() []sched.Choice {
	return sched.Schedule(w.pool, w.queue(), w.running, w.fresh, noon)
}

// drawScenario makes a pool with gangs on it and gangs that wait.
func drawScenario(t *rapid.T) scenario {
	w := scenario{gangs: map[string]sched.Gang{}, pool: sched.Pool{
		Name: "gpus", Spread: rapid.Bool().Draw(t, "spread"), Preempt: rapid.Bool().Draw(t, "preempt"), Held: drawHeld(t),
	}}
	p := &w.pool
	slots := 1
	if rapid.Bool().Draw(t, "shared") {
		slots = 2 + even(t, 2, "slots")
	}
	ready := 0
	var order []int
	for i := range 8 - rapid.IntRange(0, 8).Draw(t, "no nodes") {
		n := sched.Node{Name: fmt.Sprint("gpus-", i), Slots: slots, Ready: !rarely(t, 6, "not ready")}
		if n.Ready {
			ready++
		}
		p.Nodes, order = append(p.Nodes, n), append(order, i)
	}
	p.Starting = oneOf(t, "starting", 0, 0, 0, 1, 2)
	p.Max = ready + p.Starting + oneOf(t, "grow", 0, 0, 0, 0, 1, 3)
	p.Short = oneOf(t, "short", "", "", "the quota of ada is used up")
	if rarely(t, 20, "down") {
		p.Down = "it is being mended"
	}
	for i := range 7 - rapid.IntRange(0, 7).Draw(t, "not running") {
		r := sched.Running{Gang: drawGang(t, fmt.Sprint("r", i)), Stopping: rarely(t, 3, "stopping")}
		r.Nodes = oneOf(t, "on nodes", 1, 1, 2, 4)
		r.Since = noon.Add(-time.Duration(even(t, 45, "since")) * 2 * time.Minute)
		for _, k := range rapid.Permutation(order).Draw(t, "on") {
			if n := &p.Nodes[k]; len(r.On) < r.Nodes && n.Used < n.Slots {
				n.Used++
				r.On = append(r.On, n.Name)
			}
		}
		if r.Nodes = len(r.On); r.Nodes > 0 {
			w.running = append(w.running, r)
		}
	}
	for i := range p.Nodes { // somebody else's, of whom nothing is known
		if n := &p.Nodes[i]; n.Used < n.Slots && rarely(t, 8, "other") {
			n.Used++
		}
	}
	waits := even(t, 12, "waiting")
	if rarely(t, 20, "many") {
		waits += 100
	}
	for i := range waits {
		g := drawGang(t, fmt.Sprint("g", i))
		g.Seq = int64(i)
		w.gangs[g.ID] = g
		if rapid.Bool().Draw(t, "fresh") {
			w.fresh = append(w.fresh, g.ID)
		}
	}
	return w
}

// drawBlocked makes a pool on which most of what runs has a limit, a gang or two that find room,
// one that does not, and small ones behind it: what a head must be guarded in.
func drawBlocked(t *rapid.T) scenario {
	w := scenario{gangs: map[string]sched.Gang{}, pool: sched.Pool{Name: "gpus", Spread: rapid.Bool().Draw(t, "spread"), Starting: oneOf(t, "starting", 0, 0, 0, 1)}}
	p := &w.pool
	slots := oneOf(t, "slots", 1, 2, 3)
	for i := range 3 + even(t, 6, "nodes") {
		p.Nodes = append(p.Nodes, sched.Node{Name: fmt.Sprint("gpus-", i), Slots: slots, Ready: true})
	}
	p.Max = len(p.Nodes) + p.Starting + oneOf(t, "grow", 0, 0, 0, 1)
	minutes := func(what string) time.Duration { return time.Duration(5*(1+even(t, 24, what))) * time.Minute }
	for i := range 1 + even(t, 2*len(p.Nodes), "running") {
		r := sched.Running{Gang: sched.Gang{ID: fmt.Sprint("r", i), Name: fmt.Sprint("job-r", i), Limit: minutes("limit")}, Stopping: rarely(t, 4, "stopping")}
		r.Since = noon.Add(oneOf(t, "since", -5*time.Minute, -30*time.Minute, -time.Hour))
		if rarely(t, 8, "unlimited") {
			r.Limit = 0
		}
		for range oneOf(t, "on nodes", 1, 1, 2, 3) {
			n := &p.Nodes[even(t, len(p.Nodes), "on")]
			if n.Used < n.Slots && !slices.Contains(r.On, n.Name) {
				n.Used++
				r.On = append(r.On, n.Name)
			}
		}
		if r.Nodes = len(r.On); r.Nodes > 0 {
			w.running = append(w.running, r)
		}
	}
	add := func(n int) {
		g := sched.Gang{ID: fmt.Sprint("g", len(w.gangs)), Nodes: n, Seq: int64(len(w.gangs)), Limit: minutes("limit")}
		g.Name = "job-" + g.ID
		if rarely(t, 3, "unlimited") {
			g.Limit = 0
		}
		w.gangs[g.ID] = g
	}
	for range even(t, 3, "before") {
		add(1)
	}
	add(1 + even(t, len(p.Nodes), "head"))
	for range even(t, 8, "behind") {
		add(oneOf(t, "small", 1, 1, 1, 2))
	}
	return w
}

// drawCrowded makes a full pool where much of what runs may be stopped, and urgent gangs wait.
func drawCrowded(t *rapid.T) scenario {
	w := scenario{gangs: map[string]sched.Gang{}, pool: sched.Pool{Name: "gpus", Preempt: true, Starting: oneOf(t, "starting", 0, 0, 0, 1)}}
	p := &w.pool
	slots := oneOf(t, "slots", 1, 2, 3)
	var order []int
	for i := range 2 + even(t, 5, "nodes") {
		p.Nodes, order = append(p.Nodes, sched.Node{Name: fmt.Sprint("gpus-", i), Slots: slots, Ready: true}), append(order, i)
	}
	p.Max = len(p.Nodes) + p.Starting
	for i := range 4 + even(t, 6, "running") {
		r := sched.Running{Stopping: rarely(t, 8, "stopping"), Since: noon.Add(-time.Duration(even(t, 4, "since")) * time.Minute)}
		r.ID, r.Priority, r.Spot = fmt.Sprint("r", i), even(t, 3, "priority"), !rarely(t, 5, "dedicated")
		r.Name = "job-" + r.ID
		n := oneOf(t, "on nodes", 1, 1, 2, 2, 3)
		for _, k := range rapid.Permutation(order).Draw(t, "on") {
			if node := &p.Nodes[k]; len(r.On) < n && node.Used < slots {
				node.Used++
				r.On = append(r.On, node.Name)
			}
		}
		if r.Nodes = len(r.On); r.Nodes > 0 {
			w.running = append(w.running, r)
		}
	}
	for i := range 1 + even(t, 7, "waiting") {
		g := sched.Gang{ID: fmt.Sprint("g", i), Name: fmt.Sprint("job-g", i), Nodes: oneOf(t, "of nodes", 1, 1, 2, 3, 4), Priority: 1 + even(t, 3, "priority"), Seq: int64(i)}
		w.gangs[g.ID] = g
	}
	return w
}

func drawGang(t *rapid.T, id string) sched.Gang {
	return sched.Gang{
		ID: id, Name: "job-" + id, Nodes: oneOf(t, "of nodes", 1, 1, 1, 2, 2, 3, 4, 5),
		User: oneOf(t, "user", "ada", "bob", "cyd"), Priority: even(t, 3, "priority"),
		Spot: rapid.Bool().Draw(t, "spot"), Limit: time.Duration(oneOf(t, "limit", 0, 5, 20, 60, 120)) * time.Minute,
	}
}

// even is one of 0 to n-1, all about as often: rapid's own numbers are mostly small.
func even(t *rapid.T, n int, what string) (x int) {
	for _, bit := range rapid.SliceOfN(rapid.Bool(), 6, 6).Draw(t, what) {
		x <<= 1
		if bit {
			x++
		}
	}
	return x % n
}

func rarely(t *rapid.T, n int, what string) bool { return even(t, n, what) == n-1 }

func oneOf[T any](t *rapid.T, what string, of ...T) T { return of[even(t, len(of), what)] }

// free is the slots each ready node has once what these choices place is there.
func (w scenario) free(placed []sched.Choice) map[string]int {
	free := map[string]int{}
	for _, n := range w.pool.Nodes {
		if n.Ready {
			free[n.Name] = n.Slots - n.Used
		}
	}
	for _, c := range placed {
		for _, n := range c.Nodes {
			free[n]--
		}
	}
	return free
}

func (w scenario) ready() (n int) {
	for _, node := range w.pool.Nodes {
		if node.Ready {
			n++
		}
	}
	return n
}

// come is how many nodes there may be beyond those that are ready.
func (w scenario) come() int {
	if w.pool.Short != "" {
		return w.pool.Starting
	}
	return max(w.pool.Max-w.ready(), w.pool.Starting)
}

// stuck is whether a gang cannot run as things are.
func (w scenario) stuck(g sched.Gang) bool {
	return g.Nodes > w.pool.Max || w.pool.Short != "" && g.Nodes > w.ready()+w.pool.Starting || w.pool.Down != ""
}

// split is the choices before the head, and the head's; at is -1 when nothing waits for its turn.
func (w scenario) split(out []sched.Choice) (before []sched.Choice, at int) {
	at = slices.IndexFunc(out, func(c sched.Choice) bool { return len(c.Nodes) == 0 && !w.stuck(w.gangs[c.Gang]) })
	if at < 0 {
		return out, -1
	}
	return out[:at], at
}

func usable(free map[string]int) (n int) {
	for _, f := range free {
		if f > 0 {
			n++
		}
	}
	return n
}
