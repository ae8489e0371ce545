// Package measure is how the benchmarks count: quantiles, ratios of interleaved rounds, CPU and
// memory of processes, the load of the machine, and the rows that results are written as.
package measure

import (
	"math"
	"slices"
)

// Quantile is the q-quantile of v (0 to 1), interpolated between neighbours. It is NaN for no
// values.
func Quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	pos := min(max(q, 0), 1) * float64(len(s)-1)
	low := int(pos)
	if low+1 == len(s) {
		return s[low]
	}
	return s[low] + (pos-float64(low))*(s[low+1]-s[low])
}

// Median is the middle of v.
func Median(v []float64) float64 { return Quantile(v, 0.5) }

// Ratio is how two sides compare over interleaved rounds.
type Ratio struct {
	Median, Min, Max float64
	Rounds           int
}

// Ratios compares round by round: num[i] with den[i]. Rounds that one side does not have are left
// out.
func Ratios(num, den []float64) Ratio {
	var r []float64
	for i := range min(len(num), len(den)) {
		if den[i] > 0 && num[i] > 0 {
			r = append(r, num[i]/den[i])
		}
	}
	if len(r) == 0 {
		return Ratio{}
	}
	return Ratio{Median: Median(r), Min: slices.Min(r), Max: slices.Max(r), Rounds: len(r)}
}
