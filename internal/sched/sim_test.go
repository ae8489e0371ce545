package sched_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/scale"
	"github.com/berthml/berth/internal/sched"
)

// sim is a cluster in a time of its own, with scheduler and autoscaler as its loop would call them.
type sim struct {
	t               *rapid.T
	now             time.Time
	min, max        int
	slots, quota    int
	idle            time.Duration
	spread, preempt bool

	queue    sched.Queue
	work     map[string]time.Duration // how long each gang really takes
	to       []sched.Gang             // yet to come, by Seq: one a minute or all at once
	arrive   []time.Time
	nodes    []*simNode
	running  []*simRun
	why      map[string]string // of what waits
	done     map[string]bool
	short    string
	wait     time.Time
	made     int
	stops    int
	restarts int
	peak     int
}

type simNode struct {
	name  string
	boots time.Time // zero once it is there
	fails bool
	busy  int
	since time.Time
}

type simRun struct {
	sched.Running
	ends time.Time
}

const grace = 20 * time.Second

func (s *sim) pool() sched.Pool {
	p := sched.Pool{Name: "gpus", Max: s.max, Spread: s.spread, Preempt: s.preempt, Short: s.short, Held: map[string]int{}}
	for _, n := range s.nodes {
		p.Nodes = append(p.Nodes, sched.Node{Name: n.name, Slots: s.slots, Used: n.busy, Ready: n.boots.IsZero()})
		if !n.boots.IsZero() {
			p.Starting++
		}
	}
	for _, r := range s.running {
		p.Held[r.User] += len(r.On)
	}
	return p
}

func (s *sim) node(name string) *simNode {
	i := slices.IndexFunc(s.nodes, func(n *simNode) bool { return n.name == name })
	if i < 0 {
		s.t.Fatalf("there is no node %s", name)
	}
	return s.nodes[i]
}

// events is what has come about by now.
func (s *sim) events() {
	for len(s.to) > 0 && !s.arrive[0].After(s.now) {
		s.queue.Add(s.to[0])
		s.to, s.arrive = s.to[1:], s.arrive[1:]
	}
	s.running = slices.DeleteFunc(s.running, func(r *simRun) bool {
		if r.ends.After(s.now) {
			return false
		}
		for _, name := range r.On {
			n := s.node(name)
			n.busy--
			n.since = s.now
		}
		if r.Stopping {
			s.restarts++
			s.queue.Add(r.Gang)
		} else {
			s.done[r.ID] = true
		}
		return true
	})
	s.nodes = slices.DeleteFunc(s.nodes, func(n *simNode) bool {
		if n.boots.IsZero() || n.boots.After(s.now) {
			return false
		}
		n.boots, n.since = time.Time{}, s.now
		if n.fails {
			s.wait = s.now.Add(5 * time.Second)
		}
		return n.fails
	})
}

// schedule asks the scheduler and does what it says.
func (s *sim) schedule() {
	var running []sched.Running
	for _, r := range s.running {
		running = append(running, r.Running)
	}
	var fresh []string
	for g := range s.queue.All(nil) {
		if s.why[g.ID] == "" {
			fresh = append(fresh, g.ID)
		}
	}
	for _, c := range sched.Schedule(s.pool(), &s.queue, running, fresh, s.now) {
		s.why[c.Gang] = c.Why
		for _, id := range c.Preempt {
			i := slices.IndexFunc(s.running, func(r *simRun) bool { return r.ID == id })
			r := s.running[i]
			r.Stopping, r.ends = true, s.now.Add(grace)
			s.stops++
		}
		if len(c.Nodes) == 0 {
			continue
		}
		g, _ := s.queue.Get(c.Gang)
		s.queue.Remove(c.Gang)
		delete(s.why, c.Gang)
		for _, name := range c.Nodes {
			n := s.node(name)
			if n.busy++; n.busy > s.slots || !n.boots.IsZero() {
				s.t.Fatalf("%s has %d tasks", name, n.busy)
			}
		}
		s.running = append(s.running, &simRun{sched.Running{Gang: g, On: c.Nodes, Since: s.now}, s.now.Add(s.work[g.ID])})
	}
	for g := range s.queue.All(nil) {
		if s.why[g.ID] == "" {
			s.t.Fatalf("%s waits without a reason", g.ID)
		}
	}
}

// scale asks the autoscaler and does what it says. again is whether that changes what the scheduler
// was told.
func (s *sim) scale() (wake time.Time, again bool) {
	p := scale.Pool{
		Name: "gpus", Min: s.min, Max: s.max, Idle: s.idle, Slots: s.slots, Sizes: s.queue.Sizes(),
		Room: s.quota - len(s.nodes), Bound: "the quota is used up", Wait: s.wait,
	}
	for _, n := range s.nodes {
		p.Nodes = append(p.Nodes, scale.Node{Name: n.name, Starting: !n.boots.IsZero(), Busy: n.busy, Since: n.since})
	}
	d := scale.Decide(p, s.now)
	for _, name := range d.Remove {
		if s.node(name).busy > 0 {
			s.t.Fatalf("removes %s, which is busy", name)
		}
		s.nodes = slices.DeleteFunc(s.nodes, func(n *simNode) bool { return n.name == name })
	}
	for range d.Add {
		s.made++
		boots := s.now.Add(time.Duration(1+s.made%7) * 10 * time.Second)
		s.nodes = append(s.nodes, &simNode{name: fmt.Sprint("gpus-", s.made), boots: boots, fails: s.made%5 == 3})
	}
	if len(s.nodes) > s.max || len(s.nodes) > s.quota {
		s.t.Fatalf("%d nodes", len(s.nodes))
	}
	s.peak = max(s.peak, len(s.nodes))
	again = d.Short != s.short || d.Add > 0 || len(d.Remove) > 0
	s.short = d.Short
	return d.Wake, again
}

// run goes from event to event until there are no more.
func (s *sim) run() {
	for range 20_000 {
		s.events()
		var wake time.Time
		for again := true; again; {
			s.schedule()
			wake, again = s.scale()
		}
		next := wake
		sooner := func(at time.Time) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
		for _, r := range s.running {
			sooner(r.ends)
		}
		for _, n := range s.nodes {
			if !n.boots.IsZero() {
				sooner(n.boots)
			}
		}
		if len(s.arrive) > 0 {
			sooner(s.arrive[0])
		}
		if next.IsZero() {
			return
		}
		if !next.After(s.now) {
			s.t.Fatalf("time stands still at %v", s.now)
		}
		s.now = next
	}
	s.t.Fatal("it never ends")
}

// TestNothingStarves runs random gangs of several users and priorities to their end on a cluster
// that scales, whose nodes sometimes fail to start, with preemption: every gang that may run has
// run, and then the cluster has its least number of nodes.
func TestNothingStarves(t *testing.T) {
	restarts, grown := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := &sim{
			t: t, now: noon, min: rapid.IntRange(0, 2).Draw(t, "min"), slots: rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "slots"),
			idle:   time.Duration(rapid.SampledFrom([]int{0, 30, 600}).Draw(t, "idle")) * time.Second,
			spread: rapid.Bool().Draw(t, "spread"), preempt: rapid.Bool().Draw(t, "preempt"),
			work: map[string]time.Duration{}, why: map[string]string{}, done: map[string]bool{},
		}
		s.max = s.min + rapid.IntRange(1, 6).Draw(t, "more")
		s.quota = rapid.IntRange(1, 8).Draw(t, "quota")
		at := noon
		all := map[string]sched.Gang{}
		for i := range rapid.IntRange(1, 40).Draw(t, "gangs") {
			g := drawGang(t, fmt.Sprint("g", i))
			g.Seq = int64(i)
			s.work[g.ID] = time.Duration(rapid.IntRange(1, 3600).Draw(t, "seconds")) * time.Second
			if g.Limit > 0 {
				s.work[g.ID] = min(s.work[g.ID], g.Limit)
			}
			if rapid.Bool().Draw(t, "later") {
				at = at.Add(time.Duration(rapid.IntRange(1, 600).Draw(t, "after")) * time.Second)
			}
			s.to, s.arrive, all[g.ID] = append(s.to, g), append(s.arrive, at), g
		}
		s.run()
		for id, g := range all {
			may := g.Nodes <= min(s.max, s.quota)
			if may != s.done[id] {
				t.Fatalf("%+v: done %v, %q (most %d, quota %d)\n%v", g, s.done[id], s.why[id], s.max, s.quota, slices.Sorted(maps.Keys(s.done)))
			}
		}
		if want := min(s.min, s.quota); len(s.nodes) != want {
			t.Fatalf("%d nodes are left, want %d", len(s.nodes), want)
		}
		restarts, grown = restarts+s.restarts, max(grown, s.peak)
	})
	if restarts == 0 || grown < 3 {
		t.Fatalf("%d gangs were preempted, the largest cluster had %d nodes", restarts, grown)
	}
	t.Logf("%d gangs were preempted, the largest cluster had %d nodes", restarts, grown)
}
