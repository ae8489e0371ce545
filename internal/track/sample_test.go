package track

import (
	"math"
	"testing"

	"github.com/berthml/berth/internal/track/points"
)

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
			out := envelope(append([]points.Point(nil), p...), limit)
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
