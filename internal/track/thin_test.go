package track

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth/internal/track/points"
)

// TestThinnedSeries: a chart of a series in any order is that of all its points sorted by step,
// read a bounded number of times.
func TestThinnedSeries(t *testing.T) {
	const total = 60_000
	const mostReads = 11 // the first, eight that count, one that picks, one for peaks
	rng := rand.New(rand.NewPCG(3, 4))
	samePoint := func(a, b points.Point) bool {
		return a.Timestamp == b.Timestamp && a.Step == b.Step && (a.Value == b.Value || math.IsNaN(a.Value) && math.IsNaN(b.Value))
	}
	for name, point := range map[string]func(i int) points.Point{
		"in order": func(i int) points.Point {
			return points.Point{Timestamp: int64(i), Step: int64(i), Value: rng.Float64()}
		},
		"steps that fall": func(i int) points.Point {
			return points.Point{Timestamp: int64(i), Step: int64(-i / 3), Value: rng.Float64()}
		},
		"steps in any order": func(i int) points.Point {
			return points.Point{Timestamp: int64(i), Step: rng.Int64N(total), Value: rng.Float64()}
		},
		"steps far apart": func(i int) points.Point {
			return points.Point{Timestamp: int64(i), Step: int64(rng.Uint64()) &^ 1, Value: rng.Float64()}
		},
		"few peaks": func(i int) points.Point {
			v := float64(i % 3)
			if i%5 == 0 || i < 20_000 {
				v = math.NaN()
			}
			return points.Point{Timestamp: int64(i), Step: int64(total-i) >> 1, Value: v}
		},
		"but one within a few steps": func(i int) points.Point {
			return points.Point{Timestamp: int64(i), Step: int64(map[bool]uint64{true: math.MaxInt64 - 1, false: rng.Uint64N(1000)}[i == 5]), Value: rng.Float64()}
		},
		"repeated": func(i int) points.Point { return points.Point{Timestamp: int64(i / 2), Step: int64(i / 2), Value: 1} },
		"at one step": func(i int) points.Point {
			return points.Point{Timestamp: int64(total - i), Step: 7, Value: rng.Float64()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := points.Open(t.TempDir(), points.Options{NoSync: true, JournalSize: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			all := make([]points.Point, total)
			entries := make([]points.Entry, total)
			for i := range all {
				all[i] = point(i)
				entries[i] = points.Entry{Owner: "r", Key: "m", Point: all[i]}
			}
			for some := range slices.Chunk(entries, 10_000) {
				if err := set.Append(some); err != nil {
					t.Fatal(err)
				}
			}
			slices.SortFunc(all, func(a, b points.Point) int {
				return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Timestamp, b.Timestamp), cmp.Compare(a.Value, b.Value))
			})
			all = slices.CompactFunc(all, samePoint)
			c := &call{workspace: &workspace{points: set, s: New(Options{})}, ctx: t.Context()}
			for what, in := range map[string]func(points.Point) bool{"all": nil, "some": func(p points.Point) bool { return p.Step%2 == 0 && p.Step < total/2 }} {
				want := all
				if in != nil {
					want = slices.DeleteFunc(slices.Clone(all), func(p points.Point) bool { return !in(p) })
				}
				for _, thin := range []thinning{&sample{limit: 100}, &sample{limit: maxIntervalPoints}, &envelope{limit: 101}, &envelope{limit: maxIntervalPoints}} {
					asked := 0
					got, err := c.drawSeries("r", "m", thin, func(p points.Point) bool {
						asked++
						return in == nil || in(p)
					})
					if err != nil {
						t.Fatal(err)
					}
					if asked > mostReads*len(all) {
						t.Errorf("%s, %T: the series was read %d times", what, thin, asked/len(all))
					}
					got = slices.Clone(got)
					if expected := thinned(thin, want); !slices.EqualFunc(got, expected, samePoint) {
						t.Errorf("%s, %T: %v, want %v", what, thin, got[:min(3, len(got))], expected[:min(3, len(expected))])
					}
				}
			}
		})
	}
}

// TestDrawingsTakeTurns: while a series with falling steps is read again for a chart, the user has
// a turn, which others of the same user wait for.
func TestDrawingsTakeTurns(t *testing.T) {
	set, err := points.Open(t.TempDir(), points.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for i := range int64(3) {
		if err := set.Append([]points.Entry{{Owner: "r", Key: "m", Point: points.Point{Timestamp: i, Step: -i}}}); err != nil {
			t.Fatal(err)
		}
	}
	s := New(Options{})
	var drawing, asked atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			c := &call{workspace: &workspace{points: set, s: s}, ctx: t.Context(), who: Caller{User: "ada"}}
			n := 0
			got, err := c.drawSeries("r", "m", &sample{limit: 2}, func(points.Point) bool {
				if n++; n == 4 { // the second reading begins
					if drawing.Add(1) > drawingsOfUser {
						t.Error("several charts are made at a time")
					}
					if s.drawings.of["ada"].TryAcquire(1) {
						t.Error("a chart is made without a turn")
					}
				} else if n == 9 { // the third ends
					drawing.Add(-1)
				}
				asked.Add(1)
				return true
			})
			if err != nil || len(got) != 2 || got[0].Step != -2 || got[1].Step != 0 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	group.Wait()
	if n := len(s.drawings.of); n != 0 || asked.Load() != 8*9 {
		t.Errorf("%d users have turns, %d points were read", n, asked.Load())
	}
}
