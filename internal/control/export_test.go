package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/overlay"
)

// CheckState fails t when a try at a cycle changes the state: only apply may. With fail the first try
// at each cycle fails after it has done everything, as if its commit had.
func (c *Control) CheckState(t testing.TB, fail bool) {
	first := true
	c.probe = func(outcome *error) func() {
		before := c.state.String()
		return func() {
			if after := c.state.String(); after != before {
				t.Errorf("a cycle changed the state:\n%s", difference(before, after))
			}
			if first = !first; fail && !first && *outcome == nil {
				*outcome = berth.Errorf(berth.Unavailable, "the commit failed")
			}
		}
	}
}

// String is everything the state says.
func (s *state) String() string {
	var b strings.Builder
	for k, p := range sorted(&s.pools) {
		fmt.Fprintf(&b, "%v %s %+v %+v held %v local %v stored %s bounds %+v barred %v wake %v %+v\n",
			k, p.name, p.spec, p.state, p.held, p.localTasks, p.stored, p.lastBounds, p.barred, p.wake, p.memory)
		for _, n := range p.nodes {
			fmt.Fprintf(&b, "  node %+v\n", *n)
		}
		for g := range p.queue.All(nil) {
			fmt.Fprintf(&b, "  waits %+v\n", g)
		}
		fmt.Fprintf(&b, "  %d wait: %v, sizes %v\n", p.queue.Len(), slices.Sorted(p.queue.IDs()), p.queue.Sizes())
		for id, r := range sorted(&p.running) {
			fmt.Fprintf(&b, "  runs %s %+v\n", id, r)
		}
	}
	for id, g := range sorted(&s.gangs) {
		fmt.Fprintf(&b, "gang %s %+v\n", id, *g)
	}
	for workspace, budgets := range sorted(&s.exhausted) {
		fmt.Fprintf(&b, "exhausted %s %+v\n", workspace, budgets)
	}
	for _, id := range slices.Sorted(maps.Keys(s.placed)) {
		fmt.Fprintf(&b, "placed %s %p\n", id, s.placed[id])
	}
	fmt.Fprintf(&b, "%+v %d %v %v\n", s.personal, s.lastNodeID, s.shifted, s.problems)
	return b.String()
}

// sorted is a map in an order that stays.
func sorted[K comparable, V any](m *overlay.Map[K, V]) func(yield func(K, V) bool) {
	keys := slices.SortedFunc(m.Keys(), func(a, b K) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return func(yield func(K, V) bool) {
		for _, k := range keys {
			if v, _ := m.Get(k); !yield(k, v) {
				return
			}
		}
	}
}

// difference is the lines of two texts that are not the same.
func difference(before, after string) string {
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	var out []string
	for _, l := range was {
		if !slices.Contains(is, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range is {
		if !slices.Contains(was, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}
