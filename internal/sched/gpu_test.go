package sched_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/sched"
)

// gpuNode is a ready machine with so many slots and GPUs, of which a job that does not say has a
// share.
func gpuNode(name string, slots, gpus int) sched.Node {
	n := sched.Node{Name: name, Slots: slots, GPUs: gpus, Ready: true}
	if slots > 1 && gpus > 0 {
		n.Share = max(1, gpus/slots)
	}
	return n
}

// put has a gang on a node.
func put(n *sched.Node, g sched.Gang) {
	n.Used++
	n.Holders = n.Holders.With(g)
}

// TestGPUsOfNodes: a gang goes to a machine that has its GPUs free, in pools of different machines,
// and where none has it says which are in use by whom; gangs that have no use for what it waits for
// go on.
func TestGPUsOfNodes(t *testing.T) {
	g := func(id string, gpus int) sched.Gang { return sched.Gang{ID: id, Name: "job-" + id, GPUs: gpus} }
	pool := func(nodes ...sched.Node) sched.Pool {
		return sched.Pool{Name: "pool", Nodes: nodes, Max: len(nodes), GPUs: true}
	}
	a, b, c := gpuNode("a", 3, 2), gpuNode("b", 2, 1), gpuNode("c", 2, 0)
	put(&a, g("x", 1))
	put(&a, g("y", 1))
	full := b
	put(&full, g("z", 0))
	away := gpuNode("big", 1, 8)
	away.Ready = false
	wide := g("w", 1)
	wide.Nodes = 2
	for _, tc := range []struct {
		name string
		pool sched.Pool
		wait []sched.Gang
		want []string // "GANG on NODE" or "GANG: reason"
	}{
		{"another machine has one", pool(a, b), []sched.Gang{g("1", 1)}, []string{"1 on b"}},
		{"the one with fewest that will do", pool(gpuNode("a", 2, 4), gpuNode("b", 2, 1)), []sched.Gang{g("1", 1), g("2", 4)}, []string{"1 on b", "2 on a"}},
		{"none is free", pool(a, full, c), []sched.Gang{g("1", 1), g("2", 1), g("3", -1), g("4", 0)}, []string{
			"1: needs 1 GPU: 2 of 2 GPUs of a are in use by jobs job-x and job-y; 1 of 1 GPU of b is in use by job job-z",
			"2: needs 1 GPU: 2 of 2 GPUs of a are in use by jobs job-x and job-y; 1 of 1 GPU of b is in use by job job-z",
			"3 on c", "4 on c",
		}},
		{"the head's machine is kept for it", pool(gpuNodeWith(gpuNode("a", 4, 4), g("x", 3))), []sched.Gang{g("1", 2), g("2", 1), g("3", -1)}, []string{
			"1: needs 2 GPUs: 3 of 4 GPUs of a are in use by job job-x", "2: job job-1 goes first: it needs 2 GPUs: 3 of 4 GPUs of a are in use by job job-x", "3 on a",
		}},
		{"no machine has so many", pool(a, b), []sched.Gang{g("1", 3), g("2", 1)}, []string{"1: needs a machine with 3 GPUs, and no machine of pool has more than 2", "2 on b"}},
		{"the one that has them is away", func() sched.Pool { p := pool(a, b, away); p.Short = "big is drained: cut"; return p }(), []sched.Gang{g("1", 4), g("2", 1)}, []string{
			"1: needs a machine with 4 GPUs, and pool has 0 that takes jobs now: big is drained: cut", "2 on b",
		}},
		{"none has any", pool(c), []sched.Gang{g("1", 1), g("2", 0)}, []string{"1: needs a machine with 1 GPU, and no machine of pool is known to have any", "2 on c"}},
		{"two machines", pool(gpuNode("a", 2, 2), b, c), []sched.Gang{wide}, []string{"w on a,b"}},
		{"two machines of one", pool(a, b, c), []sched.Gang{wide}, []string{"w: needs 2 machines with 1 GPU each: 2 of 2 GPUs of a are in use by jobs job-x and job-y"}},
		{"slots and GPUs on different machines", pool(a, gpuNodeWith(gpuNode("b", 1, 2), g("z", -1))), []sched.Gang{g("1", 2)}, []string{
			"1: needs 2 GPUs: 2 of 2 GPUs of a are in use by jobs job-x and job-y; b has no free slot",
		}},
		{"a share", pool(gpuNodeWith(gpuNode("a", 2, 2), g("x", 2))), []sched.Gang{g("1", 0)}, []string{"1: needs its share of the GPUs of a machine: 2 of 2 GPUs of a are in use by job job-x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var q sched.Queue
			for i, g := range tc.wait {
				g.Seq = int64(i)
				q.Add(g)
			}
			var got []string
			for _, c := range sched.Schedule(tc.pool, &q, nil, nil, noon) {
				if len(c.Nodes) > 0 {
					got = append(got, c.Gang+" on "+strings.Join(c.Nodes, ","))
				} else {
					got = append(got, c.Gang+": "+c.Why)
				}
			}
			slices.Sort(got)
			if d := gocmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func gpuNodeWith(n sched.Node, all ...sched.Gang) sched.Node {
	for _, g := range all {
		put(&n, g)
	}
	return n
}

// TestGPULaws: no node gives more GPUs than it has, everybody who waits has a reason, the same
// question has the same answer, and the gang that goes first gets its GPUs however many come after
// it, once those that run when it comes have ended.
func TestGPULaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := gpuWorld{T: t, gangs: map[string]sched.Gang{}, running: map[string][]string{}}
		w.pool = sched.Pool{Name: "pool", GPUs: true, Spread: rapid.Bool().Draw(t, "spread")}
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			n := gpuNode(fmt.Sprint("n", i), rapid.IntRange(1, 3).Draw(t, "slots"), rapid.IntRange(0, 4).Draw(t, "gpus"))
			if n.Ready = rapid.IntRange(0, 5).Draw(t, "ready") > 0; !n.Ready {
				w.pool.Short = n.Name + " is drained"
			}
			w.pool.Nodes = append(w.pool.Nodes, n)
		}
		w.pool.Max = len(w.pool.Nodes)
		w.add(rapid.IntRange(1, 12).Draw(t, "gangs"))
		w.cycle()
		head := ""
		for g := range w.queue.All(nil) {
			if head == "" && !w.stuck(g) {
				head = g.ID
			}
		}
		for id := range maps.Clone(w.running) { // what runs ends, one by one, and more comes
			w.end(id)
			w.add(rapid.IntRange(0, 3).Draw(t, "more"))
			w.cycle()
		}
		if _, waits := w.queue.Get(head); waits {
			t.Fatalf("%s still waits, %v run", head, w.running)
		}
	})
}

// gpuWorld is a pool in which what is placed runs until it is ended.
type gpuWorld struct {
	*rapid.T
	pool    sched.Pool
	queue   sched.Queue
	gangs   map[string]sched.Gang
	running map[string][]string
}

func (w *gpuWorld) add(n int) {
	for range n {
		g := sched.Gang{
			ID: fmt.Sprint("g", len(w.gangs)), Seq: int64(len(w.gangs)), Nodes: rapid.IntRange(1, 2).Draw(w.T, "wide"), GPUs: rapid.IntRange(-1, 4).Draw(w.T, "asks"),
		}
		w.gangs[g.ID] = g
		w.queue.Add(g)
	}
}

// stuck is whether too few nodes could ever run a gang, or are there.
func (w *gpuWorld) stuck(g sched.Gang) bool {
	n := 0
	for _, node := range w.pool.Nodes {
		if node.Ready && g.GPUs <= node.GPUs {
			n++
		}
	}
	return n < g.Nodes
}

func (w *gpuWorld) node(name string) *sched.Node {
	return &w.pool.Nodes[slices.IndexFunc(w.pool.Nodes, func(n sched.Node) bool { return n.Name == name })]
}

func (w *gpuWorld) end(id string) {
	for _, name := range w.running[id] {
		n := w.node(name)
		n.Used--
		n.Holders = n.Holders.Without(id)
	}
	delete(w.running, id)
}

// cycle places what can be placed.
func (w *gpuWorld) cycle() {
	ids := slices.Sorted(w.queue.IDs())
	out := sched.Schedule(w.pool, &w.queue, nil, ids, noon)
	if d := gocmp.Diff(out, sched.Schedule(w.pool, &w.queue, nil, ids, noon)); d != "" {
		w.Fatalf("another answer to the same question: %s", d)
	}
	said := map[string]bool{}
	for _, c := range out {
		if said[c.Gang] = true; c.Why == "" || len(c.Preempt) > 0 {
			w.Fatalf("%+v", c)
		}
		if len(c.Nodes) == 0 {
			continue
		}
		if len(slices.Compact(slices.Sorted(slices.Values(c.Nodes)))) != w.gangs[c.Gang].Nodes {
			w.Fatalf("%+v", c)
		}
		w.queue.Remove(c.Gang)
		w.running[c.Gang] = c.Nodes
		for _, name := range c.Nodes {
			put(w.node(name), w.gangs[c.Gang])
		}
	}
	for _, n := range w.pool.Nodes {
		used := 0
		for _, h := range n.Holders {
			if used += h.GPUs; h.GPUs == 0 {
				used += n.Share
			}
		}
		if used > n.GPUs || n.Used > n.Slots || n.Used > 0 && !n.Ready {
			w.Fatalf("node %+v", n)
		}
	}
	for _, id := range ids {
		if !said[id] {
			w.Fatalf("nothing is said of %s", id)
		}
	}
}
