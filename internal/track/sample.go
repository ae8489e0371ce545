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

// sample leaves at most limit points of a series, by step: the first of each of that many equal
// parts, and of the last part the last.
func sample(p []points.Point, limit int) []points.Point {
	sortBySteps(p)
	if len(p) <= limit {
		return p
	}
	out := make([]points.Point, 0, limit)
	size, more := len(p)/limit, len(p)%limit // the first parts have one more
	for i := range limit - 1 {
		out = append(out, p[i*size+min(i, more)])
	}
	return append(out, p[len(p)-1])
}

// envelope leaves at most limit points of a series, by step, of which none of its peaks is missing:
// the first, the last, and of each of the equal parts between them the least and the greatest.
func envelope(p []points.Point, limit int) []points.Point {
	sortBySteps(p)
	if len(p) <= limit {
		return p
	}
	if limit < 4 {
		return sample(p, limit)
	}
	inner, parts := p[1:len(p)-1], (limit-2)/2
	out := append(make([]points.Point, 0, limit), p[0])
	for i := range parts {
		part := inner[i*len(inner)/parts : (i+1)*len(inner)/parts]
		low, high := -1, -1
		for k, q := range part {
			if math.IsNaN(q.Value) {
				continue
			}
			if low < 0 || q.Value < part[low].Value {
				low = k
			}
			if high < 0 || q.Value > part[high].Value {
				high = k
			}
		}
		switch {
		case low < 0: // nothing but NaN, or nothing
			out = append(out, part[:min(1, len(part))]...)
		case low == high:
			out = append(out, part[low])
		default:
			out = append(out, part[min(low, high)], part[max(low, high)])
		}
	}
	return append(out, p[len(p)-1])
}
