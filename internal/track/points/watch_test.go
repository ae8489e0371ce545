package points

import (
	"errors"
	"testing"
)

// TestWatchTakesWholeGroups: who takes what comes is told of all points that became durable at
// once, however many; who takes nothing is not waited for.
func TestWatchTakesWholeGroups(t *testing.T) {
	s := open(t, t.TempDir(), Options{NoSync: true})
	w, err := s.Watch("r")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	group := make([]Entry, 2*mostWaiting)
	for round := range 3 {
		for i := range group {
			group[i] = Entry{"r", "loss", Point{int64(round), int64(i), 1}}
		}
		if err := s.Append(group); err != nil {
			t.Fatal(err)
		}
		if round == 2 {
			break
		}
		if got, err := w.Take(); len(got) != len(group) || err != nil {
			t.Fatalf("round %d: %d points of %d, %v", round, len(got), len(group), err)
		}
	}
	if err := s.Append(group[:1]); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Take(); len(got) != len(group) || err != nil {
		t.Fatalf("%d points of %d, %v", len(got), len(group), err)
	}
	if got, err := w.Take(); got != nil || !errors.Is(err, ErrBehind) {
		t.Fatalf("%d points, %v", len(got), err)
	}
}
