package points

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWalkIsTheHistory: a walk says the points of the history in its order, wherever they lie, or
// that it cannot.
func TestWalkIsTheHistory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name   string
		walks  bool
		change func(p []Point) []Point
	}{
		{"in order", true, func(p []Point) []Point { return p }},
		{"far apart", true, func(p []Point) []Point {
			for i := range p {
				p[i].Timestamp, p[i].Step = p[i].Timestamp*1e12, p[i].Step*1e6-7e8
			}
			return p
		}},
		{"one point twice", false, func(p []Point) []Point { return slices.Insert(p, 300, p[100]) }},
		{"two values of a step", false, func(p []Point) []Point { return append(p, Point{p[999].Timestamp, p[999].Step, math.NaN()}) }},
		{"steps that fall", false, func(p []Point) []Point { p[500].Step = 3; return p }},
		{"times that fall", false, func(p []Point) []Point { p[500].Timestamp = 3; return p }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			p := make([]Point, 1000)
			at := int64(1700000000000)
			for i := range p {
				at += rng.Int64N(300)
				p[i] = Point{at, int64(i), rng.Float64()}
			}
			s := open(t, dir, Options{JournalSize: 4 << 10, NoSync: true})
			for batch := range slices.Chunk(c.change(p), 50) {
				var e []Entry
				for _, q := range batch {
					e = append(e, Entry{"r", "m", q})
				}
				if err := s.Append(e); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // as it was written, and as it was opened again
				var got []Point
				n := 0
				ok, err := s.Walk("r", "m", func(all int) { n = all }, func(i int, q Point) {
					if i != len(got) {
						t.Fatalf("point %d comes after %d", i, len(got))
					}
					got = append(got, q)
				})
				if err != nil || ok != c.walks && c.walks {
					t.Fatalf("the walk says %v, %v", ok, err)
				}
				if want := history(t, s, "r", "m"); ok && (n != len(want) || !slices.EqualFunc(got, want, same)) {
					t.Fatalf("the walk has %d points of %d, the history %d, or others", len(got), n, len(want))
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir, Options{})
			}
		})
	}
}

// TestWalkOfNothing: a series that is not there has no points.
func TestWalkOfNothing(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	n := -1
	if ok, err := s.Walk("r", "m", func(all int) { n = all }, func(int, Point) { t.Error("a point") }); !ok || err != nil || n != 0 {
		t.Fatalf("%v %v, %d points", ok, err, n)
	}
}
