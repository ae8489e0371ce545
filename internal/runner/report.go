package runner

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// batch is how many reports one call carries at most.
const batch = 500

// Reporter carries the reports of many tasks to one home: one call at a time, and what is said meanwhile goes with the
// next. Of one task only the newest state waits, so a server that was away for long finds a short queue.
type Reporter struct {
	home Home
	o    ReporterOptions

	mu    sync.Mutex
	queue []berth.Report
	wake  chan struct{}
	kick  chan struct{}
}

// ReporterOptions is what happens around reports. Any field may be zero.
type ReporterOptions struct {
	// Delivered is called for each report the server took, or refused for good. It must not block for long.
	Delivered func(berth.Report)
	// Stop is called for each task the server wants to end.
	Stop func(berth.TaskID)
	// MaxWait is the longest pause between attempts while the server is away.
	MaxWait time.Duration
	Log     *slog.Logger
}

// NewReporter makes a Reporter; nothing is sent before Run.
func NewReporter(home Home, o ReporterOptions) *Reporter {
	if o.MaxWait == 0 {
		o.MaxWait = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Reporter{home: home, o: o, wake: make(chan struct{}, 1), kick: make(chan struct{}, 1)}
}

// Send queues a report.
func (r *Reporter) Send(rep berth.Report) {
	r.mu.Lock()
	r.queue = add(r.queue, rep)
	r.mu.Unlock()
	poke(r.wake)
}

// Kick ends a pause: the server seems to be there again.
func (r *Reporter) Kick() { poke(r.kick) }

// Idle reports whether nothing waits to be sent. A report on its way still waits.
func (r *Reporter) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) == 0
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add queues rep, merged into the newest report of its task that waits.
func add(queue []berth.Report, rep berth.Report) []berth.Report {
	for i := len(queue) - 1; i >= 0; i-- {
		old := &queue[i]
		if old.Task != rep.Task {
			continue
		}
		if old.Warning != "" && rep.Warning != "" {
			break // each warning is an event of its own
		}
		if rep.Warning == "" {
			rep.Warning = old.Warning
		}
		if rep.Usage == nil {
			rep.Usage = old.Usage
		}
		if rep.Exit == nil {
			rep.Exit = old.Exit
		}
		*old = rep
		return queue
	}
	return append(queue, rep)
}

// Run sends until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	const least = 20 * time.Millisecond
	wait := least
	for {
		r.mu.Lock()
		n := min(len(r.queue), batch)
		out := append([]berth.Report(nil), r.queue[:n]...)
		r.mu.Unlock()
		if n == 0 {
			select {
			case <-r.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if r.deliver(ctx, out) {
			wait = least
			continue
		}
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
			wait = min(wait*2, r.o.MaxWait)
		case <-r.kick:
			wait = least
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// deliver sends out, the front of the queue, and takes off it what is settled. False asks for a pause.
func (r *Reporter) deliver(ctx context.Context, out []berth.Report) bool {
	c, cancel := context.WithTimeout(ctx, 30*time.Second)
	reply, err := r.home.Report(c, out)
	cancel()
	if err != nil {
		switch berth.CodeOf(err) {
		case berth.NotFound, berth.Unauthenticated, berth.Denied, berth.Invalid, berth.Gone:
		default:
			if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
				r.o.Log.Debug("reports wait", "count", len(out), "err", err)
			}
			return false
		}
		if len(out) > 1 {
			// One of them is refused, and it is not known which: each goes alone.
			ok := true
			for i := range out {
				ok = r.deliver(ctx, out[i:i+1]) && ok
			}
			return ok
		}
		r.o.Log.Warn("report refused", "task", out[0].Task, "err", err)
		reply = Reply{}
	}
	r.settle(out)
	for _, id := range reply.Unknown {
		r.o.Log.Warn("the server does not know the task", "task", id)
	}
	if r.o.Stop != nil {
		for _, id := range reply.Stop {
			r.o.Stop(id)
		}
	}
	return true
}

// settle takes delivered reports off the queue; one that was overtaken by a newer report of its task meanwhile stays.
func (r *Reporter) settle(out []berth.Report) {
	type key struct {
		id  berth.TaskID
		seq int
	}
	done := make(map[key]bool, len(out))
	for _, rep := range out {
		done[key{rep.Task, rep.Seq}] = true
	}
	r.mu.Lock()
	left := r.queue[:0]
	for _, rep := range r.queue {
		if !done[key{rep.Task, rep.Seq}] {
			left = append(left, rep)
		}
	}
	clear(r.queue[len(left):])
	r.queue = left
	r.mu.Unlock()
	if r.o.Delivered != nil {
		for _, rep := range out {
			r.o.Delivered(rep)
		}
	}
}
