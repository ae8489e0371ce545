package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
)

// observeEvery is how often targets with tasks are asked what they see. Reports come by push; this
// finds what cannot report.
const observeEvery = 5 * time.Second

// patience is how many observations in a row may miss a task, or may call it done while its last
// report has not arrived, before it counts as ended.
const patience = 3

// observeMany is how many tasks can be observed in that time at no visible cost. With more tasks
// the next observation comes later, but not later than observeLate, unless something is missing.
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

// observeInterval is how often to look at the tasks that were placed.
func (c *Control) observeInterval() time.Duration {
	n := len(c.state.placed)
	switch {
	case n == 0:
		return 0
	case n <= observeMany || len(c.missed) > 0:
		return observeEvery
	}
	return min(observeEvery*time.Duration(1+n/observeMany), observeLate).Truncate(observeEvery)
}

// observation is what a target was asked for and what it answered.
type observation struct {
	target *driver.Target
	asked  []*placement // what should be there
	seen   []driver.Observed
	err    error
}

// observe asks the targets which tasks they have. The loop does not wait for the answers; they
// arrive as observations.
func (c *Control) observe(ctx context.Context) {
	for t, asked := range c.byTarget() {
		c.requestObserve(ctx, observation{target: t, asked: asked})
	}
}

// byTarget are the tasks that were placed, by where they are.
func (c *Control) byTarget() map[*driver.Target][]*placement {
	out := map[*driver.Target][]*placement{}
	for _, p := range c.state.placed {
		if t := c.target(c.state, &p.task).Driver; t != nil {
			out[t] = append(out[t], p)
		}
	}
	return out
}

// observeReturned observes targets that were away, also when no task should be there: what ended
// meanwhile is removed.
func (c *Control) observeReturned(ctx context.Context, back []*driver.Target) {
	if len(back) == 0 {
		return
	}
	asked := c.byTarget()
	for _, t := range back {
		c.requestObserve(ctx, observation{target: t, asked: asked[t]})
	}
}

// requestObserve asks a target, unless its last answer is still outstanding: then it is asked again
// after that.
func (c *Control) requestObserve(ctx context.Context, l observation) {
	if _, under := c.observing[l.target]; under {
		c.observing[l.target] = true
		return
	}
	c.observing[l.target] = false
	c.acts.Go(func() {
		octx, cancel := context.WithTimeout(ctx, observeEvery)
		defer cancel()
		l.seen, l.err = l.target.Observe(octx)
		select {
		case c.observations <- l:
		case <-ctx.Done():
		}
	})
}

// onObserved takes the answer of a target.
func (c *Control) onObserved(ctx context.Context, l observation) {
	again := c.observing[l.target]
	delete(c.observing, l.target)
	if l.err != nil && ctx.Err() == nil {
		c.o.Log.Warn("target not observed", "err", l.err)
	}
	var unseen *driver.Unseen
	if errors.As(l.err, &unseen) { // some nodes did not answer, but the rest was seen
		l.asked = slices.DeleteFunc(l.asked, func(p *placement) bool { return slices.Contains(unseen.Nodes, p.task.Node) })
	}
	if l.err == nil || unseen != nil {
		if c.compare(ctx, l.asked, l.seen) {
			c.missed[l.target] = true
		} else {
			delete(c.missed, l.target)
		}
		if c.missed[l.target] && slices.Contains(c.makers(), l.target) {
			c.checkNodes(ctx) // what is missing may be so because its node is
		}
		c.sweep(ctx, l.target, l.seen)
	}
	if again {
		c.observe(ctx)
	}
}

// watchMakers has the targets that make nodes tell when one of them is not what it was.
func (c *Control) watchMakers(ctx context.Context) {
	for _, maker := range c.makers() {
		if c.watched[maker] {
			continue
		}
		c.watched[maker] = true
		ch, err := maker.Watch(ctx)
		if err != nil {
			continue
		}
		c.acts.Go(func() {
			for range ch {
				select {
				case c.hints <- struct{}{}:
				default:
				}
			}
		})
	}
}

// sweep removes from a target what ended and is recorded. A task this server does not know at all
// is left alone: it may belong to a database that was restored.
func (c *Control) sweep(ctx context.Context, target *driver.Target, seen []driver.Observed) {
	for id, p := range c.unanswered {
		select {
		case <-p.started:
			delete(c.unanswered, id)
		default:
		}
	}
	var over []driver.Handle
	err := c.o.DB.View(ctx, func(tx *store.Tx) error {
		for _, o := range seen {
			if o.State != berth.TaskDone || c.state.placed[o.Task] != nil || c.unanswered[o.Task] != nil {
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
	if len(over) == 0 {
		return
	}
	c.acts.Go(func() {
		for _, h := range over {
			if err := target.Remove(ctx, h); err != nil && ctx.Err() == nil {
				c.o.Log.Debug("task not removed", "handle", h, "err", err)
			}
		}
	})
}

// severalOn reports whether a task is on one of several machines that are attached together.
func (c *Control) severalOn(p *placement) bool {
	q := c.state.pool(keyOf(p.task.Workspace, p.task.Compute))
	return q != nil && q.several()
}

// compare ends what a target has not seen for long. It says whether something was missing.
func (c *Control) compare(ctx context.Context, ps []*placement, seen []driver.Observed) (missed bool) {
	byTask := make(map[berth.TaskID]driver.Observed, len(seen))
	for _, o := range seen {
		if p := c.state.placed[o.Task]; p != nil && p.task.Node != "" && o.Node != "" && o.Node != p.task.Node && c.severalOn(p) {
			continue // a machine knows nothing of what another one runs
		}
		byTask[o.Task] = o
	}
	queued := map[*placement]string{}
	for _, p := range ps {
		if c.state.placed[p.task.ID] != p {
			continue // it ended meanwhile
		}
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
			if o.State == berth.TaskPlaced && o.Why != "" && o.Why != p.queued {
				queued[p] = o.Why
			}
			continue
		}
		missed = true
		if p.missing++; p.missing < patience && !(ok && o.Final) {
			continue
		}
		exit := &berth.Exit{Code: -1, Cause: "lost", Reason: "the task disappeared from " + p.task.Compute + " without a report of how it ended"}
		if ok && o.Exit != nil {
			exit = o.Exit
		}
		c.endTask(ctx, p.task.ID, exit)
	}
	if len(queued) > 0 {
		c.noteQueued(ctx, queued)
	}
	return missed
}

// noteQueued writes down why tasks wait in a queue of their target's own.
func (c *Control) noteQueued(ctx context.Context, queued map[*placement]string) {
	why := make(map[berth.TaskID]string, len(queued))
	for p, reason := range queued {
		why[p.task.ID] = reason
	}
	if !c.noteWaiting(ctx, why) {
		return
	}
	for p, why := range queued {
		p.queued = why
	}
}

// noteWaiting writes down why tasks that were placed have not begun, which becomes the reason of
// their jobs. It says whether it could.
func (c *Control) noteWaiting(ctx context.Context, all map[berth.TaskID]string) bool {
	err := c.o.DB.Update(ctx, func(tx *store.Tx) error {
		for id, why := range all {
			t, err := tx.Task(id)
			if err != nil {
				return err
			}
			if t.State != berth.TaskPlaced || t.Why == why || t.Evict || t.Stop {
				continue
			}
			t.Why = why
			data, err := json.Marshal(map[string]any{"task": t.ID, "state": t.State, "phase": "waiting", "detail": why})
			if err != nil {
				return err
			}
			tx.Emit(berth.Event{Workspace: t.Workspace, Subject: "jobs/" + t.Job, Type: berth.EventTaskState, Reason: why, Data: data})
			if err := tx.SaveTask(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		c.o.Log.Warn("why tasks wait was not written down", "tasks", len(all), "err", err)
	}
	return err == nil
}
