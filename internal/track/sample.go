package track

import (
	"cmp"
	"math"
	"slices"

	"github.com/berthml/berth/internal/track/points"
)

// sortBySteps sorts a history by step; steps mostly grow with time.
func sortBySteps(p []points.Point) {
	byStep := func(a, b points.Point) int { return cmp.Compare(a.Step, b.Step) }
	if !slices.IsSortedFunc(p, byStep) {
		slices.SortStableFunc(p, byStep)
	}
}

// A thinning leaves at most limit points of the n of a series, which it is given by step.
type thinning interface {
	most() int // limit
	begin(n int)
	each(i int, p points.Point)
	rest() []points.Point
}

// thinned is what a thinning leaves of points in any order.
func thinned(t thinning, p []points.Point) []points.Point {
	sortBySteps(p)
	t.begin(len(p))
	for i := range p {
		t.each(i, p[i])
	}
	return t.rest()
}

// A sample is the first of each of limit equal parts, and of the last part the last.
type sample struct {
	limit     int
	n         int
	size, big int // of a part, and how many of the first have one more
	next      int // the point that comes next into out
	out       []points.Point
}

func (s *sample) begin(n int) {
	s.n, s.next, s.out = n, 0, make([]points.Point, 0, min(n, s.limit))
	s.size, s.big = n/s.limit, n%s.limit
	if s.limit == 1 {
		s.next = n - 1
	}
}

func (s *sample) each(i int, p points.Point) {
	if i != s.next {
		return
	}
	s.out = append(s.out, p)
	k := len(s.out)
	switch {
	case s.n <= s.limit:
		s.next++
	case k == s.limit-1:
		s.next = s.n - 1
	default:
		s.next = k*s.size + min(k, s.big)
	}
}

func (s *sample) most() int { return s.limit }

func (s *sample) rest() []points.Point { return s.out }

// An envelope lacks none of the peaks of a series: it has the first, the last, and of each of the
// equal parts between them the least and the greatest.
type envelope struct {
	limit, n         int
	parts, part, end int // the part that is gone through ends before end
	first, low, high points.Point
	lowAt, highAt    int // -1 for none
	firstAt          int
	out              []points.Point
}

func (e *envelope) begin(n int) {
	*e = envelope{limit: e.limit, n: n, parts: (e.limit - 2) / 2, out: make([]points.Point, 0, min(n, e.limit))}
	e.open()
}

// open begins the part.
func (e *envelope) open() {
	e.end = 1 + (e.part+1)*(e.n-2)/e.parts
	e.lowAt, e.highAt, e.firstAt = -1, -1, -1
}

func (e *envelope) each(i int, p points.Point) {
	if e.n <= e.limit || i == 0 {
		e.out = append(e.out, p)
		return
	}
	for i == e.end && e.part < e.parts {
		e.close()
	}
	if i == e.n-1 {
		e.out = append(e.out, p)
		return
	}
	if e.firstAt < 0 {
		e.first, e.firstAt = p, i
	}
	if math.IsNaN(p.Value) {
		return
	}
	if e.lowAt < 0 || p.Value < e.low.Value {
		e.low, e.lowAt = p, i
	}
	if e.highAt < 0 || p.Value > e.high.Value {
		e.high, e.highAt = p, i
	}
}

// close ends the part.
func (e *envelope) close() {
	switch {
	case e.firstAt < 0:
	case e.lowAt < 0: // nothing but NaN
		e.out = append(e.out, e.first)
	case e.lowAt == e.highAt:
		e.out = append(e.out, e.low)
	case e.lowAt < e.highAt:
		e.out = append(e.out, e.low, e.high)
	default:
		e.out = append(e.out, e.high, e.low)
	}
	e.part++
	e.open()
}

func (e *envelope) most() int { return e.limit }

func (e *envelope) rest() []points.Point { return e.out }
