package sched_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/sched"
)

// world is everything one call of Schedule is told.
type world struct {
	pool    sched.Pool
	gangs   map[string]sched.Gang
	running []sched.Running
	fresh   []string
}

func (w world) queue() *sched.Queue {
	q := &sched.Queue{}
	for _, g := range w.gangs { // in any order
		q.Add(g)
	}
	return q
}

func (w world) schedule() []sched.Choice {
	return sched.Schedule(w.pool, w.queue(), w.running, w.fresh, noon)
}

// drawWorld makes a pool with gangs on it and gangs that wait.
func drawWorld(t *rapid.T) world {
	w := world{gangs: map[string]sched.Gang{}, pool: sched.Pool{
		Name: "gpus", Spread: rapid.Bool().Draw(t, "spread"), Preempt: rapid.Bool().Draw(t, "preempt"), Held: drawHeld(t),
	}}
	p := &w.pool
	slots := rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "slots")
	ready := 0
	var order []int
	for i := range 8 - rapid.IntRange(0, 8).Draw(t, "no nodes") {
		n := sched.Node{Name: fmt.Sprint("gpus-", i), Slots: slots, Ready: !rarely(t, 6, "not ready")}
		if n.Ready {
			ready++
		}
		p.Nodes, order = append(p.Nodes, n), append(order, i)
	}
	p.Starting = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "starting")
	p.Max = ready + p.Starting + rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "grow")
	p.Short = rapid.SampledFrom([]string{"", "", "the quota of ada is used up"}).Draw(t, "short")
	if rarely(t, 20, "down") {
		p.Down = "it is being mended"
	}
	for i := range 7 - rapid.IntRange(0, 7).Draw(t, "not running") {
		r := sched.Running{Gang: drawGang(t, fmt.Sprint("r", i)), Stopping: rarely(t, 5, "stopping")}
		r.Since = noon.Add(-time.Duration(rapid.IntRange(0, 90).Draw(t, "since")) * time.Minute)
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
	waits := 10 - rapid.IntRange(0, 10).Draw(t, "not waiting")
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

func drawGang(t *rapid.T, id string) sched.Gang {
	return sched.Gang{
		ID: id, Name: "job-" + id, Nodes: rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4, 5}).Draw(t, "of nodes"),
		User: rapid.SampledFrom([]string{"ada", "bob", "cyd"}).Draw(t, "user"), Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
		Spot: rapid.Bool().Draw(t, "spot"), Limit: time.Duration(rapid.SampledFrom([]int{0, 5, 20, 60, 120}).Draw(t, "limit")) * time.Minute,
	}
}

// rarely is true once in n times or less: rapid likes small numbers best.
func rarely(t *rapid.T, n int, what string) bool { return rapid.IntRange(1, n).Draw(t, what) == n }

// free is the slots each ready node has once what these choices place is there.
func (w world) free(placed []sched.Choice) map[string]int {
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

func (w world) ready() (n int) {
	for _, node := range w.pool.Nodes {
		if node.Ready {
			n++
		}
	}
	return n
}

// come is how many nodes there may be beyond those that are ready.
func (w world) come() int {
	if w.pool.Short != "" {
		return w.pool.Starting
	}
	return max(w.pool.Max-w.ready(), w.pool.Starting)
}

// stuck is whether a gang cannot run as things are.
func (w world) stuck(g sched.Gang) bool {
	return g.Nodes > w.pool.Max || w.pool.Short != "" && g.Nodes > w.ready()+w.pool.Starting || w.pool.Down != ""
}

// split is the choices before the head, and the head's; at is -1 when nothing waits for its turn.
func (w world) split(out []sched.Choice) (before []sched.Choice, at int) {
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
