package track

import (
	"math"

	"github.com/berthml/berth/internal/track/points"
)

// A thinning leaves at most limit points of the n of a series, which it is given by step.
type thinning interface {
	most() int // limit
	begin(n int)
	// cuts is the ranks of points, ascending, that it has to be given at least. If peaks is true,
	// the first is 0, and it also needs the first, the least and the greatest point from each of
	// them to the next; it does not matter which ranks in between these are given.
	cuts() (ranks []int, peaks bool)
	each(i int, p points.Point)
	rest() []points.Point
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
	s.next = s.rank(0)
}

func (s *sample) each(i int, p points.Point) {
	if i != s.next {
		return
	}
	s.out = append(s.out, p)
	s.next = s.rank(len(s.out))
}

// rank is that of the k-th point that is left.
func (s *sample) rank(k int) int {
	switch {
	case s.n <= s.limit:
		return k
	case k == s.limit-1:
		return s.n - 1
	default:
		return k*s.size + min(k, s.big)
	}
}

func (s *sample) cuts() (ranks []int, peaks bool) {
	ranks = make([]int, min(s.n, s.limit))
	for k := range ranks {
		ranks[k] = s.rank(k)
	}
	return ranks, false
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

// start is the rank at which a part begins.
func (e *envelope) start(part int) int { return 1 + part*(e.n-2)/e.parts }

func (e *envelope) cuts() (ranks []int, peaks bool) {
	if e.n <= e.limit {
		ranks = make([]int, e.n)
		for i := range ranks {
			ranks[i] = i
		}
		return ranks, false
	}
	ranks = []int{0}
	for part := range e.parts {
		ranks = append(ranks, e.start(part))
	}
	return append(ranks, e.n-1), true
}

// open begins the part.
func (e *envelope) open() {
	e.end = e.start(e.part + 1)
	e.lowAt, e.highAt, e.firstAt = -1, -1, -1
}

func (e *envelope) each(i int, p points.Point) {
	if e.n <= e.limit || i == 0 {
		e.out = append(e.out, p)
		return
	}
	for i >= e.end && e.part < e.parts {
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
