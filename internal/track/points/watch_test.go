package points

import (
	"errors"
	"runtime"
	"testing"
	"time"
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

// TestWatchesAreToldTogether: points that became durable at once are there once, however many
// watch them.
func TestWatchesAreToldTogether(t *testing.T) {
	s := open(t, t.TempDir(), Options{NoSync: true})
	var watches [3]*Watch
	for i := range watches {
		w, err := s.Watch("r")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches[i] = w
	}
	if err := s.Append([]Entry{{"r", "loss", Point{1, 1, 1}}, {"other", "loss", Point{1, 1, 1}}, {"r", "acc", Point{2, 1, 1}}}); err != nil {
		t.Fatal(err)
	}
	var first *Entry
	for i, w := range watches {
		got, err := w.Take()
		if len(got) != 2 || err != nil || got[1] != (Entry{"r", "acc", Point{2, 1, 1}}) {
			t.Fatalf("%v, %v", got, err)
		}
		if i == 0 {
			first = &got[0]
		} else if &got[0] != first {
			t.Error("each watch has points of its own")
		}
	}
}

// TestEndedWatchesAreDropped: nobody is told any more who fell behind.
func TestEndedWatchesAreDropped(t *testing.T) {
	s := open(t, t.TempDir(), Options{NoSync: true})
	slow, err := s.Watch("r")
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Stop()
	quick, err := s.Watch("r")
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Stop()
	for range 2 {
		group := make([]Entry, mostWaiting)
		for i := range group {
			group[i] = Entry{"r", "loss", Point{1, int64(i), 1}}
		}
		if err := s.Append(group); err != nil {
			t.Fatal(err)
		}
		if got, err := quick.Take(); len(got) != len(group) || err != nil {
			t.Fatalf("%d points, %v", len(got), err)
		}
	}
	if list := s.watches["r"]; len(list) != 1 || list[0] != quick {
		t.Errorf("%d watches are told", len(list))
	}
}

// TestWatchesKeepNobodyWaiting: while a watch is told, the points can be read.
func TestWatchesKeepNobodyWaiting(t *testing.T) {
	s := open(t, t.TempDir(), Options{NoSync: true})
	w, err := s.Watch("r")
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	done := make(chan error)
	go func() { done <- s.Append([]Entry{{"r", "loss", Point{1, 1, 1}}}) }()
	seen := false
	for begin := time.Now(); !seen && time.Since(begin) < 10*time.Second; runtime.Gosched() {
		if s.mu.TryRLock() {
			o := s.owners["r"]
			seen = o != nil && o.series[0].count == 1
			s.mu.RUnlock()
		}
	}
	w.mu.Unlock()
	if err := <-done; err != nil || !seen {
		t.Errorf("the points could be read: %t; %v", seen, err)
	}
	w.Stop()
}
