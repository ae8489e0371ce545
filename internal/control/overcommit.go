package control

import (
	"math"
	"time"
)

// endRate counts how fast tasks end on a target, fading over time. Where they end within
// milliseconds, waiting for a free slot to be seen before the next task is sent would take longer
// than the task.
type endRate struct {
	count float64
	at    time.Time
}

const (
	rateFade = 500 * time.Millisecond // how long an end is remembered
	// tasks that would end within this are worth sending early
	overcommitWindow = 100 * time.Millisecond
	maxOvercommit    = 64
)

func (p *endRate) fade(now time.Time) {
	if dt := now.Sub(p.at); dt > 0 {
		p.count *= math.Exp(-float64(dt) / float64(rateFade))
		p.at = now
	}
}

// overcommit is how many tasks to send beyond the slots. Tasks that take seconds are never sent
// early.
func (p *endRate) overcommit(now time.Time) int {
	if p == nil {
		return 0
	}
	q := *p
	q.fade(now)
	return min(maxOvercommit, int(q.count*float64(overcommitWindow)/float64(rateFade)))
}

// countEnd notes the end of a task.
func (c *Control) countEnd(compute string, now time.Time) {
	p := c.endRates[compute]
	if p == nil {
		p = &endRate{at: now}
		c.endRates[compute] = p
	}
	p.fade(now)
	p.count++
}
