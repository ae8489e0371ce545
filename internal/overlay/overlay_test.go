package overlay_test

import (
	"maps"
	"testing"

	"github.com/berthml/berth/internal/overlay"
	"pgregory.net/rapid"
)

// TestForkIsAMap: a fork behaves as a map, its base stays as it was, and joining makes the base
// what the fork is.
func TestForkIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m overlay.Map[int, int]
		want := map[int]int{}
		for range rapid.IntRange(1, 4).Draw(t, "cycles") {
			before := maps.Clone(want)
			fork := m.Fork()
			changed := maps.Clone(want)
			for _, op := range rapid.SliceOfN(rapid.IntRange(-8, 8), 0, 20).Draw(t, "ops") {
				if k := max(op, -op); op < 0 {
					fork.Delete(k)
					delete(changed, k)
				} else {
					fork.Set(k, len(changed))
					changed[k] = len(changed)
				}
				check(t, "fork", &fork, changed)
			}
			check(t, "base", &m, before)
			if rapid.Bool().Draw(t, "join") {
				m.Join(&fork)
				want = changed
			}
			check(t, "after", &m, want)
		}
	})
}

func check(t *rapid.T, what string, m *overlay.Map[int, int], want map[int]int) {
	if got := maps.Collect(m.All()); !maps.Equal(got, want) || m.Len() != len(want) {
		t.Fatalf("%s is %v (%d), want %v", what, got, m.Len(), want)
	}
	for k := range 9 {
		if v, ok := m.Get(k); v != want[k] || ok != func() bool { _, ok := want[k]; return ok }() {
			t.Fatalf("%s has %d for %d, want %v", what, v, k, want)
		}
	}
}
