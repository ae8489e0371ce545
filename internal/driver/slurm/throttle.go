package slurm

import (
	"context"
	"strconv"
	"time"
)

// At first Slurm starts only some of the jobs of a large array (--array=0-999%16): had it started
// all, most would come too late. When these take long for each task, all may start; when there is
// much left, more may, as long as that helps.

const (
	// firstJobs is how many jobs of an array may run at first, and widenEvery how often is looked
	// whether more are to.
	firstJobs  = 16
	widenEvery = 2 * time.Second
	// Tasks take long where fewer than the furtherShare-th part of the jobs took a further one.
	furtherShare = 4
	// soonOver is how many times widenEvery what is left may take without more jobs.
	soonOver = 5
	// More jobs have helped where so many times as many tasks were given as before at best.
	helped = 1.25
)

// throttle is how many jobs of an array may run at a time, and how fast they are.
type throttle struct {
	most    int  // 0 is no limit
	looking bool // widen looks at it
	adopted bool // an earlier server may have set most to something else
	further int  // how many tasks were given to jobs that had had one
	seen    int  // further when widen last looked
	best    int  // most that were given within widenEvery
}

// mostAtFirst is how many jobs of an array of so many tasks may run at a time at first.
func mostAtFirst(tasks int) int {
	if tasks > firstJobs {
		return firstJobs
	}
	return 0
}

// arrayOption is the option of sbatch for an array of so many tasks.
func arrayOption(tasks int) string {
	out := "--array=0-" + strconv.Itoa(tasks-1)
	if most := mostAtFirst(tasks); most > 0 {
		out += "%" + strconv.Itoa(most)
	}
	return out
}

// widenLater has widen look at an array from now on. The mutex is held.
func (d *Driver) widenLater(a *array) {
	if t := &a.turns.throttle; t.most > 0 && !t.looking {
		t.looking = true
		d.errands.after(widenEvery, func(ctx context.Context) { d.widen(ctx, a) })
	}
}

// widen lets more jobs of an array run where the first ones are too slow, and looks again later.
func (d *Driver) widen(ctx context.Context, a *array) {
	d.mu.Lock()
	t, left := &a.turns.throttle, 0
	for i := range a.Tasks {
		if free, later := d.free(a, i); free || later {
			left++
		}
	}
	given := t.further - t.seen
	t.seen = t.further
	most := nextMost(t.most, given, t.best, left)
	if t.adopted {
		most = 0
	}
	t.best = max(t.best, given)
	number, changed := a.job, most != t.most
	d.mu.Unlock()
	if left == 0 {
		return
	}
	if changed {
		if err := d.slurm.throttle(ctx, number, most); err != nil {
			if ctx.Err() != nil {
				return
			}
			d.log.Warn("more jobs of an array may not run yet", "job", number, "err", err)
			most = t.most
		}
		d.mu.Lock()
		t.most = most
		d.mu.Unlock()
	}
	if most > 0 {
		d.errands.after(widenEvery, func(ctx context.Context) { d.widen(ctx, a) })
	}
}

// nextMost is how many jobs of an array may run at a time, after at most so many have run for
// another widenEvery and were given so many further tasks, with so many left and best the most they
// were given in that time before. Where most jobs had no second task each may have its own; where
// it would take long to get through all, twice as many may run, unless the last ones were no help.
func nextMost(most, given, best, left int) int {
	switch {
	case given < most/furtherShare:
		return 0
	case left > soonOver*given && float64(given) >= helped*float64(best):
		return 2 * most
	}
	return most
}
