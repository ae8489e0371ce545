package track

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestColumnsMadeMeanwhile: columns that are made while runs come, change, log and go have what a
// look at each run finds.
func TestColumnsMadeMeanwhile(t *testing.T) {
	i := newIndexed(t, 1)
	for range 4 * takenAtOnce {
		i.put()
		i.log(t)
	}
	shown := func(stage string) bool { return stage == active }
	ids := []string{"0", "1", "2"}
	for range 4 {
		i.w.mu.Lock()
		for f := range i.x.columns.used {
			i.x.columns.drop(i.p, f)
		}
		i.w.mu.Unlock()
		var searches []*search
		for range 8 {
			searches = append(searches, i.search(t))
		}
		var made sync.WaitGroup
		for _, s := range searches {
			made.Go(func() { (&call{workspace: i.w, ctx: t.Context()}).selectRuns(ids, s, shown) })
		}
		done := make(chan struct{})
		go func() { made.Wait(); close(done) }()
		for n, more := 0, true; more; n++ {
			select {
			case <-done:
				more = false
			default:
			}
			i.log(t)
			i.w.mu.Lock()
			if i.put(); n%5 == 0 {
				i.drop()
			}
			i.w.mu.Unlock()
		}
		for _, s := range searches {
			s := &search{ctx: t.Context(), clauses: s.clauses, orders: s.orders, limit: s.limit, from: s.from, query: s.query}
			got := runIDs((&call{workspace: i.w, ctx: t.Context()}).selectRuns(ids, s, shown))
			if want := i.scanned(ids, s, shown); !slices.Equal(got, want) {
				t.Fatalf("%d runs, %s, %d from %d:\n got %v\nwant %v", len(i.ids), s.query, s.limit, s.from, got, want)
			}
		}
	}
}

// TestColumnTakesTurns: between the parts of a column that are taken the index changes, and the
// column has what became of the runs on both sides of the last that was taken.
func TestColumnTakesTurns(t *testing.T) {
	for seed := range uint64(4) {
		i := newIndexed(t, seed)
		for range 6 * takenAtOnce {
			i.put()
		}
		for _, key := range []string{"lr", "none"} {
			f := field{of: paramOfRun, key: key, lacking: key == "none"}
			m := &making{experiment: "0", f: f}
			i.x.columns.making = m
			var list []valued
			for parts := 1; !m.all; parts++ {
				for _, r := range m.take(i.x) {
					if v := f.value(r.r); v.class < 2 {
						list = append(list, valued{v, r.n})
					}
				}
				for n := range takenAtOnce {
					if i.put(); n%3 == 0 {
						i.drop()
					}
				}
				if m.all && parts < 3 {
					t.Fatalf("%d parts", parts)
				}
			}
			col := newColumn(f, list)
			for turns := 1; !i.x.columns.finish(m, col); turns++ {
				i.put()
			}
			var got, want []*node
			for n := range col.ordered(false, col.all()) {
				got = append(got, n)
			}
			for n := range i.x.nodes("0") {
				if f.value(n.r).class < 2 {
					want = append(want, n)
				}
			}
			slices.SortStableFunc(want, func(a, b *node) int { return strings.Compare(f.value(a.r).text, f.value(b.r).text) })
			if !slices.Equal(got, want) {
				t.Errorf("the column of %s has %d runs, want %d", key, len(got), len(want))
			}
		}
	}
}
