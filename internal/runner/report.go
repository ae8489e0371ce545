package runner

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
)

const (
	// batch is how many tasks' reports one call carries at most.
	batch = 500
	// linger is how long a report waits that is not the last of its task: of a task that ends
	// meanwhile only the end is told.
	linger = 3 * time.Millisecond
	// gather is how long any report waits for others while there is more than enough to do: a call
	// of the server costs it a commit and a look at every job that is named, and both cost the same
	// for one task as for ten.
	gather = 20 * time.Millisecond
)

// Reporter carries the reports of many tasks to one home: one call at a time, and what is said
// meanwhile goes with the next. Of one task only the newest state waits, so a server that was away
// for long finds a short queue.
type Reporter struct {
	home Home
	o    ReporterOptions
	wake chan struct{} // something was queued that should not wait
	kick chan struct{} // the server seems to be back

	sending sync.Mutex                         // held by whoever talks to the home
	abandon atomic.Pointer[context.CancelFunc] // ends the call that is under way

	mu     sync.Mutex
	order  []berth.TaskID // tasks with reports that wait, oldest first
	queue  map[berth.TaskID][]berth.Report
	linger *time.Timer // wakes Run for reports that may wait a little; nil before the first
	armed  bool        // it is under way
	sent   time.Time   // when something was last sent
	away   bool        // the last attempt failed: only Run tries again, which it does until there is nothing due
}

// ReporterOptions is what happens around reports. Any field may be zero.
type ReporterOptions struct {
	// Delivered is called for each report the server took, or refused for good, after Stop. It must
	// not block for long.
	Delivered func(berth.Report)
	// Stop is called for each task that the server wants to end.
	Stop func(berth.TaskID)
	// Busy says that there is enough to do without an answer: then ends of tasks too wait a little,
	// to go together.
	Busy func() bool
	// MaxWait is the longest pause between attempts while the server is away.
	MaxWait time.Duration
	Log     *slog.Logger
}

// NewReporter returns a Reporter; nothing is sent before Run.
func NewReporter(home Home, o ReporterOptions) *Reporter {
	if o.MaxWait == 0 {
		o.MaxWait = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Reporter{
		home: home, o: o, wake: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		queue: map[berth.TaskID][]berth.Report{},
	}
}

// Send queues a report. That of an end is sent at once, by the caller if nobody else is sending: it
// has nothing else to do, and the way to another goroutine costs more than the report. It returns
// when the home has answered or is away.
func (r *Reporter) Send(ctx context.Context, rep berth.Report) {
	wait, busy := r.patience()
	r.mu.Lock()
	now := urgent(rep) && (!busy || time.Since(r.sent) >= wait)
	waiting := r.queue[rep.Task]
	if len(waiting) == 0 {
		r.order = append(r.order, rep.Task)
	}
	r.queue[rep.Task] = add(waiting, rep)
	away := r.away
	if !now && !away {
		r.arm(wait)
	}
	r.mu.Unlock()
	if !now || away {
		return
	}
	if rep.State != berth.TaskDone || !r.sending.TryLock() {
		poke(r.wake)
		return
	}
	ok := r.flush(ctx)
	r.sending.Unlock()
	if !ok || len(r.front()) > 0 { // what came while the mutex was held
		poke(r.wake)
	}
}

// arm has what lingers sent after a while. The mutex is held.
func (r *Reporter) arm(wait time.Duration) {
	if r.armed {
		return
	}
	r.armed = true
	if r.linger == nil {
		r.linger = time.AfterFunc(wait, r.lingered)
	} else {
		r.linger.Reset(wait)
	}
}

// lingered is called when reports have waited for long enough, and goes on as long as some linger.
func (r *Reporter) lingered() {
	due := len(r.front()) > 0
	wait, _ := r.patience()
	r.mu.Lock()
	r.armed = len(r.order) > 0 && !r.away
	if r.armed {
		r.linger.Reset(wait)
	}
	r.mu.Unlock()
	if due {
		poke(r.wake)
	}
}

// Kick ends a pause between attempts: the server seems to be back.
func (r *Reporter) Kick() { poke(r.kick) }

// Again aborts a call in progress, which may never be answered, and sends its reports again:
// another server is now at the home's address.
func (r *Reporter) Again() {
	if abandon := r.abandon.Load(); abandon != nil {
		(*abandon)()
	}
	r.Kick()
}

// Idle reports whether nothing is waiting to be sent. A report in transit is still waiting.
func (r *Reporter) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.order) == 0
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add queues rep behind the reports of its task that wait, merged into the last of them.
func add(waiting []berth.Report, rep berth.Report) []berth.Report {
	if len(waiting) == 0 {
		return append(waiting, rep)
	}
	last := &waiting[len(waiting)-1]
	if last.Warning != "" && rep.Warning != "" {
		return append(waiting, rep) // each warning is an event of its own
	}
	if rep.Warning == "" {
		rep.Warning = last.Warning
	}
	if rep.Usage == nil {
		rep.Usage = last.Usage
	}
	if rep.Staged == "" {
		rep.Staged = last.Staged
	}
	if rep.Exit == nil {
		rep.Exit = last.Exit
	}
	if rep.Kept == nil {
		rep.Kept = last.Kept
	}
	*last = rep
	return waiting
}

// Run sends reports until ctx is done.
func (r *Reporter) Run(ctx context.Context) {
	const least = 20 * time.Millisecond
	wait := least
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		for {
			r.sending.Lock()
			ok := r.flush(ctx)
			r.sending.Unlock()
			if ok {
				wait = least
				break
			}
			timer.Reset(wait/2 + rand.N(wait))
			select {
			case <-timer.C:
				wait = min(wait*2, r.o.MaxWait)
			case <-r.kick:
				wait = least
			case <-ctx.Done():
				return
			}
		}
	}
}

// flush sends everything that waits, in batches, and says whether it could. The sender's mutex is
// held.
func (r *Reporter) flush(ctx context.Context) bool {
	for {
		out := r.front()
		if len(out) == 0 {
			r.rest()
			return true
		}
		r.mu.Lock()
		r.sent = time.Now()
		r.mu.Unlock()
		ok := r.deliver(ctx, out)
		r.mu.Lock()
		r.away = !ok
		r.mu.Unlock()
		if !ok {
			return false
		}
	}
}

// rest ends the attempts to send: nothing is due. What could not be sent before may be so young
// that it lingers again.
func (r *Reporter) rest() {
	wait, _ := r.patience()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away = false; len(r.order) > 0 {
		r.arm(wait)
	}
}

// patience is how long reports wait for others, and whether those of ends do too.
func (r *Reporter) patience() (wait time.Duration, busy bool) {
	if r.o.Busy != nil && r.o.Busy() {
		return gather, true
	}
	return linger, false
}

// front is a copy of the reports to send next. Those that may linger are left out while they are
// young; where one has to go, all ends go with it.
func (r *Reporter) front() (out []berth.Report) {
	now := time.Now()
	wait, busy := r.patience()
	r.mu.Lock()
	defer r.mu.Unlock()
	old := func(q []berth.Report) bool { return len(q) > 1 || now.Sub(q[0].At) >= wait }
	ends := !busy || now.Sub(r.sent) >= wait || slices.ContainsFunc(r.order, func(id berth.TaskID) bool { return old(r.queue[id]) })
	for _, id := range r.order {
		if len(out) >= batch {
			break
		}
		if q := r.queue[id]; old(q) || ends && urgent(q[0]) {
			out = append(out, q...)
		}
	}
	return out
}

// urgent says whether a report should not wait for the next one of its task.
func urgent(r berth.Report) bool { return r.State == berth.TaskDone || r.Warning != "" }

// deliver sends reports from the front of the queue, and takes off it what is settled. False asks
// for a pause.
func (r *Reporter) deliver(ctx context.Context, out []berth.Report) bool {
	c, cancel := context.WithTimeout(ctx, 30*time.Second)
	r.abandon.Store(&cancel)
	reply, err := r.home.Report(c, out)
	r.abandon.Store(nil)
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
			for i := range out {
				if !r.deliver(ctx, out[i:i+1]) {
					return false
				}
			}
			return true
		}
		r.o.Log.Warn("report refused", "task", out[0].Task, "err", err)
		reply = Reply{}
	}
	for _, id := range reply.Unknown {
		r.o.Log.Warn("the server does not know the task", "task", id)
	}
	if r.o.Stop != nil {
		for _, id := range reply.Stop {
			r.o.Stop(id)
		}
	}
	r.settle(out)
	return true
}

// settle takes delivered reports off the queue; one that was overtaken by a newer report of its
// task meanwhile stays.
func (r *Reporter) settle(out []berth.Report) {
	r.mu.Lock()
	for _, rep := range out {
		waiting := r.queue[rep.Task]
		switch {
		case len(waiting) == 0:
		case waiting[0].Seq == rep.Seq:
			r.queue[rep.Task] = waiting[1:]
		case waiting[0].Warning == rep.Warning:
			waiting[0].Warning = "" // it took it along, and it has been said now
		}
	}
	left := r.order[:0]
	for _, id := range r.order {
		if len(r.queue[id]) > 0 {
			left = append(left, id)
		} else {
			delete(r.queue, id)
		}
	}
	clear(r.order[len(left):])
	r.order = left
	r.mu.Unlock()
	if r.o.Delivered != nil {
		for _, rep := range out {
			r.o.Delivered(rep)
		}
	}
}
