package track

import (
	"fmt"
	"testing"
)

// TestRemovalsAreForgotten: what is gone is remembered until the changes that began before have
// ended, and no longer, also where there is always one under way.
func TestRemovalsAreForgotten(t *testing.T) {
	var m removals
	remove := func(id string) {
		defer m.begin()()
		m.add(id, 5)
	}
	size := func() int { return len(m.last) + len(m.past) }
	early := m.begin()
	for n := range 100 {
		remove(fmt.Sprint("early", n))
	}
	later := m.begin()
	for n := range 100 {
		if m.of(fmt.Sprint("early", n)) != 5 {
			t.Fatalf("early%d is forgotten", n)
		}
	}
	early()
	for n := range 1000 {
		remove(fmt.Sprint("late", n))
		next := m.begin()
		later()
		if later = next; size() > 200 {
			t.Fatalf("%d are remembered after %d", size(), n)
		}
	}
	remove("last")
	if m.of("last") != 5 {
		t.Error("it is forgotten before a change has ended that may bring it back")
	}
	later()
	if size() > 0 {
		t.Errorf("%d are remembered", size())
	}
}
