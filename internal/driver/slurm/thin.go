package slurm

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// thinPause is how long jobs without a task are collected before they are canceled.
const thinPause = 100 * time.Millisecond

// thinLater has thin run soon. The mutex is held.
func (d *Driver) thinLater(a *array) {
	if !a.turns.thinning {
		a.turns.thinning = true
		d.errands.after(thinPause, func(ctx context.Context) { d.thin(ctx, a) })
	}
}

// thin cancels the jobs of an array that have no task any more and have not asked. One that is left
// behind asks, and hears that there is none.
func (d *Driver) thin(ctx context.Context, a *array) {
	d.mu.Lock()
	t := &a.turns
	t.thinning = false
	var idle []int
	for task, job := range t.owner {
		if _, has := t.task[task]; task != job && !has && t.began[task].IsZero() && !t.thinned[task] {
			t.thinned[task] = true
			idle = append(idle, task)
		}
	}
	number := a.job
	d.mu.Unlock()
	if len(idle) == 0 {
		return
	}
	slices.Sort(idle)
	if err := d.slurm.cancel(ctx, number+"_["+ranges(idle)+"]"); err != nil && ctx.Err() == nil {
		d.log.Warn("jobs of Slurm without a task were not canceled", "job", number, "count", len(idle), "err", err)
	}
}

// ranges writes numbers, which are sorted, as Slurm does: 1-3,7.
func ranges(sorted []int) string {
	var out []string
	for i := 0; i < len(sorted); {
		k := i + 1
		for k < len(sorted) && sorted[k] == sorted[k-1]+1 {
			k++
		}
		text := strconv.Itoa(sorted[i])
		if k-i > 1 {
			text += "-" + strconv.Itoa(sorted[k-1])
		}
		out, i = append(out, text), k
	}
	return strings.Join(out, ",")
}
