package control

import (
	"math"
	"time"
)

// pace is how fast tasks end on a target, as a count that fades. Where they end within milliseconds, waiting for a free slot to
// be seen before the next task is sent would take longer than the task.
type pace struct {
	count float64
	at    time.Time
}

const (
	paceFade = 500 * time.Millisecond // how long an end is remembered
	paceLook = 100 * time.Millisecond // tasks that would end within this are worth sending early
	maxAhead = 64
)

func (p *pace) fade(now time.Time) {
	if dt := now.Sub(p.at); dt > 0 {
		p.count *= math.Exp(-float64(dt) / float64(paceFade))
		p.at = now
	}
}

// ahead is how many tasks to send beyond the slots. Tasks that take seconds are never sent early.
func (p *pace) ahead(now time.Time) int {
	if p == nil {
		return 0
	}
	q := *p
	q.fade(now)
	return min(maxAhead, int(q.count*float64(paceLook)/float64(paceFade)))
}

// ended notes the end of a task.
func (c *Control) ended(compute string, now time.Time) {
	p := c.pace[compute]
	if p == nil {
		p = &pace{at: now}
		c.pace[compute] = p
	}
	p.fade(now)
	p.count++
}
