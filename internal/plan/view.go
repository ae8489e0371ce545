package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/picture"
	"github.com/berthml/berth/internal/scale"
	"github.com/berthml/berth/internal/sched"
)

// poolView is a pool as the scheduler sees it, with what waits for it.
type poolView struct {
	queue   sched.Queue
	pool    sched.Pool
	running []sched.Running
	resize  scale.Decision
	spec    *Pool
}

// view makes a poolView of a pool, with one gang more where extra is not nil.
func view(p Pool, extra *sched.Gang, now time.Time) *poolView {
	w := &poolView{running: p.Running, spec: &p}
	last := int64(0)
	for _, g := range p.Waiting {
		w.queue.Add(g)
		last = max(last, g.Seq)
	}
	if extra != nil {
		extra.Seq = last + 1
		w.queue.Add(*extra)
	}
	w.pool = p.Sched()
	if p.Scales() {
		w.grow(p, now)
	}
	return w
}

// grow asks the autoscaler what it would do.
func (w *poolView) grow(p Pool, now time.Time) {
	v := p.Scale(&w.queue)
	if p.Short != "" {
		v.Room, v.Bound = 0, p.Short
	}
	w.resize = scale.Decide(v, now)
	if w.resize.Add > p.Room {
		v.Room, v.Bound = p.Room, p.Bound.Why
		w.resize = scale.Decide(v, now)
	}
	w.pool.Short = w.resize.Short
	w.pool.Starting += w.resize.Add
}

// choose is what the scheduler decides for a gang now.
func (w *poolView) choose(id string, now time.Time) sched.Choice {
	for _, c := range sched.Schedule(w.pool, &w.queue, w.running, []string{id}, now) {
		if c.Gang == id {
			return c
		}
	}
	return sched.Choice{Gang: id, Why: "it has not been scheduled yet"}
}

// booted is the pool when the nodes that are on their way, or would be, have started.
func (w *poolView) booted() sched.Pool {
	p := w.pool
	p.Nodes = slices.Clone(p.Nodes)
	for i, n := range w.spec.Nodes {
		if n.State == berth.NodePreparing {
			p.Nodes[i].Ready = true
		}
	}
	for i := range w.resize.Add {
		p.Nodes = append(p.Nodes, sched.Node{Name: fmt.Sprintf("\x00new-%d", i), Slots: max(1, w.spec.Slots), Ready: true})
	}
	p.Starting = 0
	return p
}

// grown says whether a gang would be placed once all nodes have started, and for how many it has to
// wait.
func (w *poolView) grown(id string, now time.Time) (boot int, ok bool) {
	p := w.booted()
	for _, c := range sched.Schedule(p, &w.queue, w.running, []string{id}, now) {
		if c.Gang != id || len(c.Nodes) == 0 {
			continue
		}
		ready := map[string]bool{}
		for _, n := range w.pool.Nodes {
			ready[n.Name] = n.Ready
		}
		for _, name := range c.Nodes {
			if !ready[name] {
				boot++
			}
		}
		return boot, boot > 0
	}
	return 0, false
}

// limit is what keeps the pool from having a place for one job more, which waits for a reason.
func (w *poolView) limit(p Pool, why string) berth.PlanLimit {
	alive := 0
	for _, n := range p.Nodes {
		if n.Usable() || n.State == berth.NodePreparing {
			alive++
		}
	}
	switch {
	case p.Several():
		return berth.PlanLimit{Kind: berth.LimitSlots, Whose: p.Name, Why: why}
	case p.Single():
		return berth.PlanLimit{Kind: berth.LimitSlots, Whose: p.Name, Why: fmt.Sprintf("all %d slots of %s are in use", p.Nodes[0].Slots, p.machine())}
	case p.Type() == picture.Instance:
		return berth.PlanLimit{Kind: berth.LimitSlots, Whose: p.Name, Why: "instance " + p.Name + " runs one job at a time"}
	case w.pool.Short != "" && alive+w.resize.Add < p.Max:
		l := p.Bound
		if l.Kind == "" {
			l = berth.PlanLimit{Kind: berth.LimitMachine, Why: w.pool.Short}
		}
		l.Whose = cmp.Or(l.Whose, p.Name)
		return l
	}
	return berth.PlanLimit{Kind: berth.LimitMax, Whose: p.Name, Why: fmt.Sprintf("%s can have at most %s (max_instances), and all are taken", p.Name, nodes(p.Max))}
}

// steps bounds how far a simulation looks.
const steps = 1000

// simulate finds out when a gang would start if everything that runs ends as expected; zero when
// that is not known.
func (w *poolView) simulate(expect map[string]Expect, id string, now time.Time) (at time.Time, basis string) {
	p := w.booted()
	where := map[string]int{}
	for i, n := range p.Nodes {
		where[n.Name] = i
	}
	var queue sched.Queue
	for g := range w.queue.All(nil) {
		queue.Add(g)
	}
	held := map[string]int{}
	maps.Copy(held, w.pool.Held)
	if w.pool.Held != nil {
		p.Held = held
	}
	sim := simulation{running: slices.Clone(w.running), expect: expect, now: now}
	at = now
	for range steps {
		for _, c := range sched.Schedule(p, &queue, sim.running, nil, at) {
			if len(c.Nodes) == 0 {
				continue
			}
			if c.Gang == id {
				return at, sim.basis()
			}
			g, _ := queue.Get(c.Gang)
			queue.Remove(c.Gang)
			sim.running = append(sim.running, sched.Running{Gang: g, On: c.Nodes, Since: at})
			held[g.User] += len(c.Nodes)
			for _, n := range c.Nodes {
				node := &p.Nodes[where[n]]
				node.Used++
				node.Holders = node.Holders.With(g)
			}
		}
		ended, when, ok := sim.next(at)
		if !ok {
			return time.Time{}, ""
		}
		at = when
		for _, r := range ended {
			held[r.User] -= len(r.On)
			for _, n := range r.On {
				if i, ok := where[n]; ok {
					p.Nodes[i].Used--
					p.Nodes[i].Holders = p.Nodes[i].Holders.Without(r.ID)
				}
			}
		}
	}
	return time.Time{}, ""
}

// simulation is what runs, and what its ends were taken from.
type simulation struct {
	running []sched.Running
	expect  map[string]Expect
	now     time.Time
	guessed bool // an end was no limit
}

// ends is when a gang that runs will have ended. A guess that it has outlived says nothing.
func ends(r sched.Running, expect map[string]Expect, now time.Time) (at time.Time, limit, ok bool) {
	if r.Stopping {
		return now, true, true
	}
	e, ok := expect[r.ID]
	from := e.From
	if from.IsZero() {
		from = r.Since
	}
	at = from.Add(e.Took)
	switch {
	case !ok:
		return at, false, false
	case at.Before(now) && !e.Limit:
		return at, false, false
	case at.Before(now):
		at = now
	}
	return at, e.Limit, true
}

// next takes out what ends first.
func (s *simulation) next(at time.Time) (ended []sched.Running, when time.Time, ok bool) {
	for _, r := range s.running {
		if end, _, known := ends(r, s.expect, s.now); known && (!ok || end.Before(when)) {
			when, ok = end, true
		}
	}
	if when.Before(at) {
		when = at
	}
	s.running = slices.DeleteFunc(s.running, func(r sched.Running) bool {
		end, limit, known := ends(r, s.expect, s.now)
		if !known || end.After(when) {
			return false
		}
		ended = append(ended, r)
		s.guessed = s.guessed || !limit
		return true
	})
	return ended, when, ok
}

func (s *simulation) basis() string {
	if s.guessed {
		return "history"
	}
	return "limits"
}

// most is how many jobs in the way are named.
const most = 10

// inTheWay is the jobs that run, the next to end first, and those that wait and go before a gang.
func (w *poolView) inTheWay(expect map[string]Expect, id string, now time.Time) []berth.PlanJob {
	out := []berth.PlanJob{}
	for _, r := range w.running {
		j := berth.PlanJob{Name: r.Name, User: r.User, Status: "running", Nodes: len(r.On)}
		if at, _, ok := ends(r, expect, now); ok {
			j.Ends = at
		}
		out = append(out, j)
	}
	slices.SortStableFunc(out, func(a, b berth.PlanJob) int {
		if a.Ends.IsZero() != b.Ends.IsZero() {
			return map[bool]int{true: 1, false: -1}[a.Ends.IsZero()]
		}
		return a.Ends.Compare(b.Ends)
	})
	for g := range w.queue.All(w.pool.Held) {
		if g.ID == id || len(out) >= most {
			break
		}
		out = append(out, berth.PlanJob{Name: g.Name, User: g.User, Status: "waiting", Nodes: g.Nodes})
	}
	return out[:min(len(out), most)]
}

// Why is the reason a gang of a pool waits now, how many go before it, and the jobs in its way. ok
// is false when it does not wait: the scheduler will place it when it looks next.
func Why(p Pool, id string, now time.Time) (why string, ahead int, jobs []berth.PlanJob, ok bool) {
	w := view(p, nil, now)
	c := w.choose(id, now)
	return c.Why, w.queue.AheadOf(id, w.pool.Held), w.inTheWay(p.Expect, id, now), len(c.Nodes) == 0
}

// Deadline is when the next node of a pool goes if nothing happens; zero when none does.
func Deadline(p Pool, now time.Time) time.Time {
	if !p.Scales() {
		return time.Time{}
	}
	return view(p, nil, now).resize.Wake
}

// Leaving is when each idle node of a pool goes if nothing happens. Those that the pool keeps at
// least, or that somebody waits for, are not among them.
func Leaving(p Pool, now time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	if !p.Scales() {
		return out
	}
	end := now // when all that are idle have been so for too long
	since := map[string]time.Time{}
	for _, n := range p.Nodes {
		if n.Usable() && n.Used == 0 {
			since[n.Name] = n.IdleSince.Add(p.Idle)
			if since[n.Name].After(end) {
				end = since[n.Name]
			}
		}
	}
	for _, name := range view(p, nil, end).resize.Remove {
		if at, ok := since[name]; ok {
			out[name] = at
		}
	}
	for _, name := range view(p, nil, now).resize.Remove { // whatever the idle time is
		if _, ok := since[name]; ok {
			out[name] = now
		}
	}
	return out
}
