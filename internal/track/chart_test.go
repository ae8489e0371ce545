package track

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth/internal/track/points"
)

// TestChartsAreMadeOnce: those who ask for a chart at once, and later, share one.
func TestChartsAreMadeOnce(t *testing.T) {
	var all charts
	var drawn atomic.Int32
	want := []points.Point{{Step: 7}}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			got, err := all.get(t.Context(), chartKey{state: points.State{Series: 1, Added: 5}, limit: 10}, func() ([]points.Point, error) {
				drawn.Add(1)
				return want, nil
			})
			if err != nil || len(got) != 1 || got[0] != want[0] {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	group.Wait()
	if n := drawn.Load(); n != 1 {
		t.Errorf("drawn %d times", n)
	}
}

// TestChartsOfOtherStates: other points, and other ways to thin them, are other charts; few are
// kept.
func TestChartsOfOtherStates(t *testing.T) {
	var all charts
	drawn := 0
	get := func(k chartKey) {
		t.Helper()
		if _, err := all.get(t.Context(), k, func() ([]points.Point, error) { drawn++; return nil, nil }); err != nil {
			t.Fatal(err)
		}
	}
	for i, k := range []chartKey{
		{state: points.State{Series: 1, Added: 1}, limit: 10},
		{state: points.State{Series: 1, Added: 2}, limit: 10},
		{state: points.State{Series: 1, Added: 2}, limit: 11},
		{state: points.State{Series: 1, Added: 2}, limit: 10, envelope: true},
		{state: points.State{Series: 2, Added: 2}, limit: 10},
	} {
		if get(k); drawn != i+1 {
			t.Errorf("%+v was not drawn", k)
		}
	}
	if len(all.all) != 4 {
		t.Errorf("%d charts are kept, want 4: one was replaced by a later one of the same series", len(all.all))
	}
	kept := chartKey{state: points.State{Series: 3}, limit: 10}
	for i := range 3 * mostCharts {
		get(kept)
		get(chartKey{state: points.State{Series: uint64(100 + i)}, limit: 10})
	}
	if len(all.all) > mostCharts {
		t.Errorf("%d charts are kept, at most %d should be", len(all.all), mostCharts)
	}
	if drawn != 5+1+3*mostCharts {
		t.Errorf("drawn %d times; what is asked for often should stay", drawn)
	}
}

// TestChartOfOneWhoHasGone: those who wait for a chart that its first caller gives up get it from
// the next of them, and one who has gone does not wait.
func TestChartOfOneWhoHasGone(t *testing.T) {
	var all charts
	key := chartKey{state: points.State{Series: 1}, limit: 1}
	begun, giveUp := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		_, err := all.get(t.Context(), key, func() ([]points.Point, error) {
			close(begun)
			<-giveUp
			return nil, context.Canceled
		})
		if err == nil {
			t.Error("a chart was made of nothing")
		}
	})
	<-begun
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.get(gone, key, nil); err == nil {
		t.Error("one who has gone got a chart")
	}
	for range 5 {
		group.Go(func() {
			got, err := all.get(t.Context(), key, func() ([]points.Point, error) { return []points.Point{{}}, nil })
			if err != nil || len(got) != 1 {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	close(giveUp)
	group.Wait()
}

// TestFailedChartsAreNotKept: the next one who asks gets a chart.
func TestFailedChartsAreNotKept(t *testing.T) {
	var all charts
	key := chartKey{state: points.State{Series: 1}, limit: 1}
	bad := errors.New("bad disk")
	if _, err := all.get(t.Context(), key, func() ([]points.Point, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = all.get(t.Context(), key, func() ([]points.Point, error) { panic("a bug") })
	}()
	if got, err := all.get(t.Context(), key, func() ([]points.Point, error) { return []points.Point{{}}, nil }); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}
