package track

import (
	"math"

	"github.com/berthml/berth/internal/track/points"
)

// thin is the points of a metric that a thinning leaves. If in is not nil, only points for which it
// returns true count.
func (c *call) thin(id, key string, t thinning, in func(points.Point) bool) ([]points.Point, error) {
	if _, err := c.runOf(id); err != nil {
		return nil, err
	}
	state, n := c.points.State(id, key)
	if in != nil || n < longSeries {
		return c.drawSeries(id, key, t, in)
	}
	chart := chartKey{state: state, limit: t.most()}
	_, chart.envelope = t.(*envelope)
	return c.charts.get(c.ctx, chart, func() ([]points.Point, error) { return c.drawSeries(id, key, t, nil) })
}

// drawSeries reads a series once if its steps do not fall and no point is repeated, as most are
// logged, and more often otherwise.
func (c *call) drawSeries(id, key string, t thinning, in func(points.Point) bool) ([]points.Point, error) {
	r, err := c.reader(id, key)
	if err != nil {
		return nil, err
	}
	expected := int(r.Most())
	got, err := c.feed(r, t, expected, in)
	if err == nil && got.ordered && got.n != expected { // it counted repeated points, or points that do not count
		r.Rewind()
		got, err = c.feed(r, t, got.n, in)
	}
	if err == nil && !got.ordered {
		err = c.feedBySteps(r, t, got, in)
	}
	if err != nil {
		return nil, err
	}
	return t.rest(), nil
}

// A feeding is what is known of points after they were read once.
type feeding struct {
	n         int
	ordered   bool  // their steps do not fall
	low, high int64 // the least and the greatest step
}

// feed gives a thinning the points that count, of which it expects some number.
func (c *call) feed(r *points.Reader, t thinning, expected int, in func(points.Point) bool) (feeding, error) {
	t.begin(expected)
	got := feeding{ordered: true, low: math.MaxInt64, high: math.MinInt64}
	last := int64(math.MinInt64)
	err := c.pieces(r, func(p []points.Point) (bool, error) {
		for i := range p {
			if in != nil && !in(p[i]) {
				continue
			}
			if p[i].Step < last {
				got.ordered = false
			}
			if last = p[i].Step; got.ordered {
				t.each(got.n, p[i])
			}
			got.low, got.high = min(got.low, last), max(got.high, last)
			got.n++
		}
		return true, nil
	})
	return got, err
}

// drawingsOfUser is how many charts of series with falling steps are made for one user at a time:
// each takes memory and reads its series several times.
const drawingsOfUser = 1

// feedBySteps gives a thinning the points that it needs of those that count, by step. It reads the
// series once to pick them, once more for peaks, and before that until it knows the steps of the
// cuts: twice if the series has fewer than 20 million steps, eight times at most.
func (c *call) feedBySteps(r *points.Reader, t thinning, got feeding, in func(points.Point) bool) error {
	done, err := c.s.drawings.take(c.ctx, c.who.User)
	if err != nil {
		return err
	}
	defer done()
	var each scan = func(fn func(placed)) error {
		at := 0
		r.Rewind()
		return c.pieces(r, func(p []points.Point) (bool, error) {
			for i := range p {
				if in == nil || in(p[i]) {
					fn(placed{p[i], at})
					at++
				}
			}
			return true, nil
		})
	}
	t.begin(got.n)
	ranks, peaks := t.cuts()
	cuts, err := each.atRanks(ranks, got.low, got.high)
	if err != nil {
		return err
	}
	if !peaks {
		for i, p := range cuts {
			t.each(ranks[i], p.Point)
		}
		return nil
	}
	between, err := each.peaks(cuts)
	if err != nil {
		return err
	}
	for i := range between {
		for k, p := range between[i].points() {
			t.each(ranks[i]+k, p.Point)
		}
	}
	return nil
}
