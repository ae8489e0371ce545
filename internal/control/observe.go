package control

import (
	"context"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
)

// observeEvery is how often targets with tasks are asked what they see. Reports come by push; this finds what cannot report.
const observeEvery = 5 * time.Second

// patience is how many observations a task may be missing from, or how many its target may call it done without a report,
// before that is taken for the truth.
const patience = 3

// observeMany is how many tasks can be looked at in that time without it showing: with more the next look comes later, as long as nothing
// is missing, but not later than observeLate.
const (
	observeMany = 250
	observeLate = 20 * time.Second
)

// pacer rings again and again while it has a pace; without one it costs nothing.
type pacer struct {
	t     *time.Timer
	every time.Duration
	last  time.Time // when it rang, or began
}

func newPacer() *pacer { return &pacer{} }

// set changes the pace, 0 is none: it rings that long after it last did.
func (p *pacer) set(every time.Duration) {
	if every == p.every {
		return
	}
	if p.every == 0 {
		p.last = time.Now()
	}
	p.stop()
	if p.every = every; every > 0 {
		p.t = time.NewTimer(time.Until(p.last.Add(every)))
	}
}

// rang notes that it rang.
func (p *pacer) rang() {
	p.last = time.Now()
	p.t.Reset(p.every)
}

func (p *pacer) c() <-chan time.Time {
	if p.t == nil {
		return nil
	}
	return p.t.C
}

func (p *pacer) stop() {
	if p.t != nil {
		p.t.Stop()
		p.t, p.every = nil, 0
	}
}

// every is how often to look at the tasks that were placed.
func (c *Control) every() time.Duration {
	n := len(c.placed)
	switch {
	case n == 0:
		return 0
	case n <= observeMany || c.missed:
		return observeEvery
	}
	return min(observeEvery*time.Duration(1+n/observeMany), observeLate).Truncate(observeEvery)
}

// observe compares what we believe with what the targets see.
func (c *Control) observe(ctx context.Context) {
	var local, cluster []*placement
	for _, p := range c.placed {
		if keyOf(p.task.Workspace, p.task.Compute).workspace == "" {
			local = append(local, p)
		} else {
			cluster = append(cluster, p)
		}
	}
	c.missed = false
	c.observeTarget(ctx, berth.LocalCompute, c.o.Targets[berth.LocalCompute], local)
	c.observeTarget(ctx, "clusters", c.o.Cluster, cluster)
}

func (c *Control) observeTarget(ctx context.Context, name string, target Target, ps []*placement) {
	if len(ps) == 0 || target.Driver == nil {
		return
	}
	octx, cancel := context.WithTimeout(ctx, observeEvery)
	seen, err := target.Driver.Observe(octx)
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			c.o.Log.Warn("target not observed", "target", name, "err", err)
		}
		return
	}
	c.compare(ctx, ps, seen)
	c.sweep(ctx, target, seen)
}

// hints tell that a node is not what it was.
func (c *Control) hints(ctx context.Context) <-chan struct{} {
	if c.o.Cluster.Driver == nil {
		return nil
	}
	ch, err := c.o.Cluster.Driver.Watch(ctx)
	if err != nil {
		return nil
	}
	out := make(chan struct{}, 1)
	c.acts.Go(func() {
		for range ch {
			select {
			case out <- struct{}{}:
			default:
			}
		}
	})
	return out
}

// sweep removes from a target what ended and is recorded. A task this server does not know at all is left alone: it may belong
// to a database that was restored.
func (c *Control) sweep(ctx context.Context, target Target, seen []driver.Observed) {
	var over []driver.Handle
	err := c.o.DB.View(ctx, func(tx *store.Tx) error {
		for _, o := range seen {
			if o.State != berth.TaskDone || c.placed[o.Task] != nil {
				continue
			}
			t, err := tx.Task(o.Task)
			if err == nil && t.State == berth.TaskDone {
				over = append(over, o.Handle)
			}
		}
		return nil
	})
	if err != nil {
		return
	}
	for _, h := range over {
		if err := target.Driver.Remove(ctx, h); err != nil && ctx.Err() == nil {
			c.o.Log.Debug("task not removed", "handle", h, "err", err)
		}
	}
}

func (c *Control) compare(ctx context.Context, ps []*placement, seen []driver.Observed) {
	byTask := make(map[berth.TaskID]driver.Observed, len(seen))
	for _, o := range seen {
		byTask[o.Task] = o
	}
	for _, p := range ps {
		select {
		case <-p.started:
		default:
			continue // Start has not answered
		}
		o, ok := byTask[p.task.ID]
		if ok {
			p.handle.Store(&o.Handle)
		}
		if ok && o.State != berth.TaskDone {
			p.missing = 0
			continue
		}
		c.missed = true
		if p.missing++; p.missing < patience {
			continue
		}
		exit := &berth.Exit{Code: -1, Cause: "lost", Reason: "the task disappeared from " + p.task.Compute + " without a report of how it ended"}
		if ok && o.Exit != nil {
			exit = o.Exit
		}
		c.endTask(ctx, p.task.ID, exit)
	}
}
