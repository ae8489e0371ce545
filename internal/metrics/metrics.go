// Package metrics counts what a server does and writes it in the text format of Prometheus.
// Counting is an atomic addition; what can be found out when somebody asks is not counted.
package metrics

import (
	"math"
	"sync/atomic"
	"time"
)

// bounds are the upper bounds of the buckets of every histogram, in seconds.
var bounds = [...]float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// A Histogram counts durations. The zero value is ready for use.
type Histogram struct {
	counts [len(bounds) + 1]atomic.Int64
	sum    atomic.Int64 // nanoseconds
}

// Observe counts one. A duration below 0, which a clock that was set back can give, counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	i, s := 0, d.Seconds()
	for i < len(bounds) && s > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// buckets are the number of observations up to each bound, and of all.
func (h *Histogram) buckets() (upTo [len(bounds) + 1]int64) {
	total := int64(0)
	for i := range h.counts {
		total += h.counts[i].Load()
		upTo[i] = total
	}
	return upTo
}

func (h *Histogram) seconds() float64 { return time.Duration(h.sum.Load()).Seconds() }

// ages are the upper bounds of how long something waits, in seconds.
var ages = [...]float64{1, 10, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}

// Ages is how many of what waits has waited up to each of a few bounds: a picture of now, which is
// a gauge in Prometheus' words.
type Ages struct {
	upTo   [len(ages)]int
	all    int
	oldest float64
}

// Add adds one that has waited for d.
func (a *Ages) Add(d time.Duration) {
	s := math.Max(d.Seconds(), 0)
	a.all++
	a.oldest = math.Max(a.oldest, s)
	for i, most := range ages {
		if s <= most {
			a.upTo[i]++
		}
	}
}
