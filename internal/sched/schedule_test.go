package sched_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/sched"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// nodes of one slot each: "gpus-1" and so on, the first used of them in use.
func nodes(n, used int) []sched.Node {
	var out []sched.Node
	for i := range n {
		node := sched.Node{Name: "gpus-" + string(rune('1'+i)), Slots: 1, Ready: true}
		if i < used {
			node.Used = 1
		}
		out = append(out, node)
	}
	return out
}

func queue(gangs ...sched.Gang) *sched.Queue {
	q := &sched.Queue{}
	for i, g := range gangs {
		g.Seq = int64(i)
		q.Add(g)
	}
	return q
}

// gang needs n nodes; its job has its name.
func gang(id string, n int) sched.Gang { return sched.Gang{ID: id, Nodes: n} }

func limited(g sched.Gang, limit time.Duration) sched.Gang {
	g.Limit = limit
	return g
}

// runs is a gang that began half an hour ago.
func runs(g sched.Gang, on ...string) sched.Running {
	g.Nodes = len(on)
	return sched.Running{Gang: g, On: on, Since: noon.Add(-30 * time.Minute)}
}

func placed(id, why string, on ...string) sched.Choice {
	return sched.Choice{Gang: id, Nodes: on, Why: why}
}

func waits(id, why string) sched.Choice { return sched.Choice{Gang: id, Why: why} }

func TestScenarios(t *testing.T) {
	spot := func(id string, on ...string) sched.Running {
		r := runs(gang(id, 1), on...)
		r.Spot = true
		return r
	}
	urgent := sched.Gang{ID: "urgent", Nodes: 2, Priority: 1}
	stopping := spot("old", "gpus-1")
	stopping.Stopping = true
	shared := nodes(2, 2)
	shared[0].Slots, shared[1].Slots = 2, 4
	double := nodes(6, 0)
	for i := range double {
		double[i].Slots, double[i].Used = 2, 2
	}
	for _, tt := range []struct {
		name    string
		pool    sched.Pool
		gangs   []sched.Gang
		running []sched.Running
		fresh   []string
		want    []sched.Choice
	}{
		{
			name: "a free node is taken",
			pool: sched.Pool{Max: 4, Nodes: nodes(4, 1)}, gangs: []sched.Gang{gang("a", 1)},
			want: []sched.Choice{placed("a", "placed on gpus-2: a slot was free", "gpus-2")},
		},
		{
			name: "nodes in use are filled first",
			pool: sched.Pool{Max: 2, Nodes: shared}, gangs: []sched.Gang{gang("a", 1), gang("b", 1)},
			want: []sched.Choice{
				placed("a", "placed on gpus-1: a slot was free", "gpus-1"),
				placed("b", "placed on gpus-2: a slot was free", "gpus-2"),
			},
		},
		{
			name: "or the emptiest, to spread",
			pool: sched.Pool{Max: 2, Nodes: shared, Spread: true}, gangs: []sched.Gang{gang("a", 1), gang("b", 1)},
			want: []sched.Choice{
				placed("a", "placed on gpus-2: a slot was free", "gpus-2"),
				placed("b", "placed on gpus-2: a slot was free", "gpus-2"),
			},
		},
		{
			name: "priority, then who holds least, then who came first",
			pool: sched.Pool{Max: 3, Nodes: nodes(3, 0), Held: map[string]int{"ada": 1}},
			gangs: []sched.Gang{
				{ID: "a1", Nodes: 1, User: "ada"},
				{ID: "b1", Nodes: 1, User: "bob"},
				{ID: "b2", Nodes: 1, User: "bob"},
				{ID: "a2", Nodes: 1, User: "ada", Priority: 1},
			},
			want: []sched.Choice{
				placed("a2", "placed on gpus-1: a slot was free", "gpus-1"),
				placed("b1", "placed on gpus-2: a slot was free", "gpus-2"),
				placed("b2", "placed on gpus-3: a slot was free", "gpus-3"),
				waits("a1", "all 3 nodes of gpus are in use"),
			},
		},
		{
			name: "a gang waits until it has all its nodes, and keeps what is free",
			pool: sched.Pool{Max: 4, Nodes: nodes(4, 3)}, gangs: []sched.Gang{gang("a", 4), gang("b", 1), gang("c", 2)},
			want: []sched.Choice{
				waits("a", "needs 4 nodes at once, 1 is free"),
				waits("b", "job a goes first: it needs 4 nodes at once, 1 is free"),
				waits("c", "needs 2 nodes at once, 1 is free"),
			},
		},
		{
			name: "a short one may go first if it ends in time",
			pool: sched.Pool{Max: 3, Nodes: nodes(3, 2)},
			gangs: []sched.Gang{
				gang("a", 3), limited(gang("long", 1), 31*time.Minute), limited(gang("short", 1), 30*time.Minute), limited(gang("shorter", 1), time.Minute),
			},
			running: []sched.Running{runs(limited(gang("x", 2), time.Hour), "gpus-1", "gpus-2")},
			want: []sched.Choice{
				waits("a", "needs 3 nodes at once, and all 3 nodes of gpus are in use"),
				waits("long", "all 3 nodes of gpus are in use"),
				placed("short", "placed on gpus-3: it ends before job a, which goes first, can start", "gpus-3"),
				waits("shorter", "all 3 nodes of gpus are in use"),
			},
		},
		{
			name: "or where it is not missed",
			pool: sched.Pool{Max: 4, Nodes: nodes(4, 2)}, gangs: []sched.Gang{gang("a", 3), gang("b", 1), gang("c", 1)},
			running: []sched.Running{runs(limited(gang("x", 2), time.Hour), "gpus-1", "gpus-2")},
			want: []sched.Choice{
				waits("a", "needs 3 nodes at once, 1 is free"),
				placed("b", "placed on gpus-3: job a, which goes first, can do without it", "gpus-3"),
				waits("c", "job a goes first: it needs 3 nodes at once, 1 is free"),
			},
		},
		{
			name: "from zero",
			pool: sched.Pool{Max: 3}, gangs: []sched.Gang{gang("a", 2), gang("b", 1), gang("c", 1)},
			want: []sched.Choice{
				waits("a", "waiting for 2 nodes of gpus to start"),
				waits("b", "waiting for 1 node of gpus to start"),
				waits("c", "needs 1 node of gpus, and jobs that go first leave fewer of the 3 to come"),
			},
		},
		{
			name: "a quota keeps nobody waiting who can run",
			pool: sched.Pool{Max: 8, Nodes: nodes(2, 1), Short: "the quota is used up"}, gangs: []sched.Gang{gang("a", 4), gang("b", 1), gang("c", 1)},
			want: []sched.Choice{
				waits("a", "needs 4 nodes, and gpus has 2 and cannot grow: the quota is used up"),
				placed("b", "placed on gpus-2: a slot was free", "gpus-2"),
				waits("c", "all 2 nodes of gpus are in use; it cannot grow: the quota is used up"),
			},
		},
		{
			name: "a gang that can never run keeps nobody waiting",
			pool: sched.Pool{Max: 1, Nodes: nodes(1, 0)}, gangs: []sched.Gang{gang("a", 4), gang("b", 1), gang("c", 1)},
			want: []sched.Choice{
				waits("a", "needs 4 nodes, and gpus can have at most 1"),
				placed("b", "placed on gpus-1: a slot was free", "gpus-1"),
				waits("c", "the node of gpus is in use"),
			},
		},
		{
			name: "the youngest that will do are stopped",
			pool: sched.Pool{Max: 3, Nodes: nodes(3, 3), Preempt: true}, gangs: []sched.Gang{urgent},
			running: []sched.Running{
				spot("p", "gpus-1"), spot("q", "gpus-2"), {Gang: sched.Gang{ID: "r", Nodes: 1, Spot: true}, On: []string{"gpus-3"}, Since: noon},
			},
			want: []sched.Choice{{Gang: "urgent", Preempt: []string{"r", "p"}, Why: "waiting for 2 jobs of lower priority to stop"}},
		},
		{
			name: "nobody is stopped whose nodes others free as well",
			pool: sched.Pool{Max: 6, Nodes: double, Preempt: true}, gangs: []sched.Gang{{ID: "urgent", Nodes: 6, Priority: 1}},
			running: []sched.Running{
				spot("middle", "gpus-2", "gpus-3", "gpus-4", "gpus-5"), spot("left", "gpus-1", "gpus-2", "gpus-3"), spot("right", "gpus-4", "gpus-5", "gpus-6"),
				runs(gang("ends", 2), "gpus-1", "gpus-6"),
			},
			want: []sched.Choice{{Gang: "urgent", Preempt: []string{"left", "right"}, Why: "waiting for 2 jobs of lower priority to stop"}},
		},
		{
			name: "nobody is stopped when that is not enough",
			pool: sched.Pool{Max: 2, Nodes: nodes(2, 2), Preempt: true}, gangs: []sched.Gang{urgent},
			running: []sched.Running{spot("p", "gpus-1"), runs(gang("q", 1), "gpus-2")},
			want:    []sched.Choice{waits("urgent", "needs 2 nodes at once, and all 2 nodes of gpus are in use")},
		},
		{
			name: "what is stopping is waited for",
			pool: sched.Pool{Max: 2, Nodes: nodes(2, 1), Preempt: true}, gangs: []sched.Gang{urgent, gang("b", 1)},
			running: []sched.Running{stopping},
			want: []sched.Choice{
				waits("urgent", "waiting for job old to stop"),
				waits("b", "job urgent goes first: it needs 2 nodes at once, 1 is free"),
			},
		},
		{
			name: "growing comes before stopping",
			pool: sched.Pool{Max: 4, Nodes: nodes(2, 2), Starting: 1, Preempt: true}, gangs: []sched.Gang{urgent},
			running: []sched.Running{spot("p", "gpus-1"), spot("q", "gpus-2")},
			want:    []sched.Choice{waits("urgent", "waiting for 2 nodes of gpus to start")},
		},
		{
			name: "it takes nothing now",
			pool: sched.Pool{Max: 4, Nodes: nodes(4, 0), Down: "it is being deleted"}, gangs: []sched.Gang{gang("a", 1)}, fresh: []string{"a", "gone"},
			want: []sched.Choice{waits("a", "gpus takes no jobs now: it is being deleted")},
		},
		{
			name:  "this machine: a slot, a place in line, a reason for the new one only",
			pool:  sched.Pool{Name: "local", Max: 1, Ahead: 1, Nodes: []sched.Node{{Name: "local", Slots: 2, Used: 1, Ready: true}}},
			gangs: []sched.Gang{gang("a", 1), gang("b", 1), gang("c", 1), gang("d", 1)}, fresh: []string{"d"},
			want: []sched.Choice{
				placed("a", "placed on local: a slot was free", "local"),
				placed("b", "next in line on local: it runs as soon as one of the 2 slots is free", "local"),
				waits("d", "waiting for local: all 2 slots are in use"),
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.pool.Name == "" {
				tt.pool.Name = "gpus"
			}
			got := sched.Schedule(tt.pool, queue(tt.gangs...), tt.running, tt.fresh, noon)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestLocalLaws: this machine's node gets what its slots and its line take, in order, and no more;
// every new gang has its reason.
func TestLocalLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := sched.Node{Name: "local", Slots: rapid.IntRange(0, 5).Draw(t, "slots"), Ready: true}
		p := sched.Pool{Name: "local", Max: 1, Ahead: rapid.IntRange(0, 3).Draw(t, "ahead")}
		n.Used = rapid.IntRange(0, n.Slots+p.Ahead+1).Draw(t, "used")
		p.Nodes = []sched.Node{n}
		var gangs []sched.Gang
		var fresh []string
		for i := range rapid.IntRange(0, 10).Draw(t, "waiting") {
			gangs = append(gangs, gang(string(rune('a'+i)), 1))
			if rapid.Bool().Draw(t, "fresh") {
				fresh = append(fresh, gangs[i].ID)
			}
		}
		out := sched.Schedule(p, queue(gangs...), nil, fresh, noon)
		room := min(len(gangs), max(0, n.Slots+p.Ahead-n.Used))
		for i, c := range out {
			want := placed(c.Gang, fmt.Sprintf("next in line on local: it runs as soon as one of the %d slots is free", n.Slots), "local")
			switch {
			case i >= room:
				want = waits(c.Gang, fmt.Sprintf("waiting for local: all %d slots are in use", n.Slots))
			case c.Gang != gangs[i].ID:
				t.Fatalf("%s goes before %s", c.Gang, gangs[i].ID)
			case n.Used+i < n.Slots:
				want.Why = "placed on local: a slot was free"
			}
			if d := cmp.Diff(want, c); d != "" {
				t.Fatal(d)
			}
			fresh = slices.DeleteFunc(fresh, func(id string) bool { return id == c.Gang })
		}
		if len(out) < room || len(fresh) > 0 {
			t.Fatalf("%d of %d placed, nothing said of %v", len(out), room, fresh)
		}
	})
}
