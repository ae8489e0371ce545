package sched_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/sched"
)

// inOrder is the order of the queue, worked out the long way: again and again the gang that goes
// first of those left.
func inOrder(gangs map[string]sched.Gang, held map[string]int) []string {
	left, share := maps.Clone(gangs), maps.Clone(held)
	if share == nil {
		share = map[string]int{}
	}
	var ids []string
	for len(left) > 0 {
		var first *sched.Gang
		for _, g := range left {
			if first == nil || goesFirst(g, *first, share) {
				first = &g
			}
		}
		ids = append(ids, first.ID)
		share[first.User] += first.Nodes
		delete(left, first.ID)
	}
	return ids
}

func goesFirst(a, b sched.Gang, share map[string]int) bool {
	switch {
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	case share[a.User] != share[b.User]:
		return share[a.User] < share[b.User]
	case a.Seq != b.Seq:
		return a.Seq < b.Seq
	}
	return a.ID < b.ID
}

func drawHeld(t *rapid.T) map[string]int {
	return rapid.MapOf(rapid.SampledFrom([]string{"ada", "bob", "cyd"}), rapid.IntRange(0, 5)).Draw(t, "held")
}

// TestQueue holds a queue against a plain map: same gangs, same order, same demand, whatever is
// done.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q sched.Queue
		have := map[string]sched.Gang{}
		seq := int64(0)
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("g", rapid.IntRange(0, 30).Draw(t, "id")) })
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				seq++
				g := sched.Gang{
					ID: id.Draw(t, "gang"), Nodes: rapid.IntRange(1, 5).Draw(t, "nodes"), User: rapid.SampledFrom([]string{"ada", "bob", "cyd"}).Draw(t, "user"),
					Priority: rapid.IntRange(0, 2).Draw(t, "priority"), Seq: seq,
				}
				if rapid.IntRange(0, 3).Draw(t, "again") == 0 { // an attempt that comes back keeps its place
					g.Seq = rapid.Int64Range(0, seq).Draw(t, "seq")
				}
				q.Add(g)
				if _, ok := have[g.ID]; !ok {
					have[g.ID] = g
				}
			},
			"remove": func(t *rapid.T) {
				id := id.Draw(t, "gang")
				_, want := have[id]
				if got := q.Remove(id); got != want {
					t.Fatalf("removed %v, want %v", got, want)
				}
				delete(have, id)
			},
			"remove first": func(t *rapid.T) {
				if ids := inOrder(have, nil); len(ids) > 0 {
					q.Remove(ids[0])
					delete(have, ids[0])
				}
			},
			"": func(t *rapid.T) { same(t, &q, have) },
		})
	})
}

// TestQueueFork: what is done to a fork is not done to the queue until it is joined.
func TestQueueFork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q sched.Queue
		have := map[string]sched.Gang{}
		for range rapid.IntRange(1, 12).Draw(t, "cycles") {
			fork, forked := q.Fork(), maps.Clone(have)
			for range rapid.IntRange(0, 12).Draw(t, "changes") {
				ids := inOrder(forked, nil)
				switch n := rapid.IntRange(0, 5).Draw(t, "what"); {
				case n < 3 || len(ids) == 0:
					g := sched.Gang{
						ID: fmt.Sprint("g", rapid.IntRange(0, 60).Draw(t, "id")), Nodes: rapid.IntRange(1, 3).Draw(t, "nodes"),
						User: rapid.SampledFrom([]string{"ada", "bob", "cyd"}).Draw(t, "user"), Priority: rapid.IntRange(0, 1).Draw(t, "priority"),
						Seq: rapid.Int64Range(0, 100).Draw(t, "seq"),
					}
					fork.Add(g)
					if _, ok := forked[g.ID]; !ok {
						forked[g.ID] = g
					}
				default:
					id := ids[0]
					if n == 5 {
						id = rapid.SampledFrom(ids).Draw(t, "gang")
					}
					fork.Remove(id)
					delete(forked, id)
				}
			}
			same(t, &fork, forked)
			same(t, &q, have)
			if rapid.Bool().Draw(t, "join") {
				q.Join(&fork)
				have = forked
			}
			same(t, &q, have)
		}
	})
}

func same(t *rapid.T, q *sched.Queue, have map[string]sched.Gang) {
	held := drawHeld(t)
	want := inOrder(have, held)
	var got []string
	for g := range q.All(held) {
		got = append(got, g.ID)
		if have[g.ID] != g {
			t.Fatalf("%+v, want %+v", g, have[g.ID])
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("order with %v: %s", held, d)
	}
	if q.Len() != len(have) {
		t.Fatalf("%d gangs, want %d", q.Len(), len(have))
	}
	sizes := map[int]int{}
	for _, g := range have {
		sizes[g.Nodes]++
	}
	if d := cmp.Diff(sizes, q.Sizes()); d != "" {
		t.Fatal(d)
	}
	if len(want) > 0 {
		i := rapid.IntRange(0, len(want)-1).Draw(t, "of")
		if n := q.AheadOf(want[i], held); n != i {
			t.Fatalf("%d ahead of %s, want %d", n, want[i], i)
		}
		if n, m := q.AheadOf(want[i], nil), slices.Index(inOrder(have, nil), want[i]); n != m {
			t.Fatalf("%d ahead of %s where nobody holds anything, want %d", n, want[i], m)
		}
		if g, ok := q.Get(want[i]); !ok || g != have[want[i]] {
			t.Fatalf("%+v, %v", g, ok)
		}
	}
	if _, ok := q.Get("nobody"); ok || q.AheadOf("nobody", nil) != 0 {
		t.Fatal("there is a gang that was never added")
	}
}
