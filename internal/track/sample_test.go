package track

import (
	"math"
	"slices"
	"testing"

	"github.com/berthml/berth/internal/track/points"
)

// thinned is what a thinning leaves of points that are sorted by step.
func thinned(t thinning, p []points.Point) []points.Point {
	t.begin(len(p))
	for i := range p {
		t.each(i, p[i])
	}
	return t.rest()
}

// TestEnvelope: a chart of few points has the ends of the series and every peak, in the order of
// steps.
func TestEnvelope(t *testing.T) {
	for _, n := range []int{0, 1, 5, 99, 100, 101, 1000, 54321} {
		p := make([]points.Point, n)
		for i := range p {
			p[i] = points.Point{Timestamp: int64(i), Step: int64(i), Value: math.Sin(float64(i) / 50)}
		}
		if n > 100 {
			p[n/3].Value, p[n/2].Value, p[n/4].Value = 1000, -1000, math.NaN()
		}
		for _, limit := range []int{1, 2, 3, 4, 5, 100} {
			var thin thinning = &sample{limit: limit}
			if limit >= 4 {
				thin = &envelope{limit: limit}
			}
			out := thinned(thin, append([]points.Point(nil), p...))
			if len(out) > limit || len(out) < min(n, limit)/2 {
				t.Fatalf("%d of %d points are %d", limit, n, len(out))
			}
			seen := map[float64]bool{}
			for i, q := range out {
				seen[q.Value] = true
				if i > 0 && out[i-1].Step >= q.Step {
					t.Fatalf("%d of %d points: step %d comes after %d", limit, n, q.Step, out[i-1].Step)
				}
			}
			if n > 100 && limit >= 4 && (!seen[1000] || !seen[-1000] || out[0].Step != 0 || out[len(out)-1].Step != int64(n-1)) {
				t.Fatalf("%d of %d points lack a peak or an end", limit, n)
			}
		}
	}
}

// TestSample: a sample has the first of each of the equal parts of a series, and its last point.
func TestSample(t *testing.T) {
	for _, c := range []struct {
		n, limit int
		want     []int64
	}{
		{0, 3, []int64{}}, {3, 3, []int64{0, 1, 2}}, {10, 1, []int64{9}}, {10, 2, []int64{0, 9}}, {10, 3, []int64{0, 4, 9}}, {12, 4, []int64{0, 3, 6, 11}},
	} {
		p := make([]points.Point, c.n)
		for i := range p {
			p[i].Step = int64(i)
		}
		got := []int64{}
		for _, q := range thinned(&sample{limit: c.limit}, p) {
			got = append(got, q.Step)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d of %d points are %v, want %v", c.limit, c.n, got, c.want)
		}
	}
}
