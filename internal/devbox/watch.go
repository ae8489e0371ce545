package devbox

import (
	"context"
	"fmt"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// reconcileStopped waits while an instance is stopped: for its next start by schedule, or for
// somebody.
func (k *keeper) reconcileStopped(ctx context.Context, v *view) (time.Duration, error) {
	if v.it.State != berth.InstanceStopped && v.it.State != berth.InstanceCreateFailed {
		return 0, again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
			now.done("Succeeded")
			now.become(tx, berth.InstanceStopped, now.it.Reason)
			return nil
		}))
	}
	return k.schedules(ctx, v)
}

// schedules does what the instance's schedules want and says how long it is to their next firing.
func (k *keeper) schedules(ctx context.Context, v *view) (time.Duration, error) {
	now := time.Now()
	due, ok := v.spec.Due(v.doc.Created, v.it.Scheduled, now)
	if !ok {
		next, more := v.spec.Next(v.doc.Created, now)
		if !more {
			return forever, nil
		}
		return min(forever, max(time.Millisecond, next.At.Sub(now))), nil
	}
	return 0, again(k.change(ctx, v, func(tx *store.Tx, cur *view) error {
		at := due.At.UTC().Format(time.RFC3339)
		switch {
		case due.Start && cur.it.Want == berth.InstanceStopped:
			cur.it.Ask("Start", berth.InstanceRunning, "Schedule", "its schedule started it at "+at, now)
			cur.become(tx, berth.InstanceStarting, cur.it.Reason)
		case !due.Start && cur.it.Want == berth.InstanceRunning:
			cur.it.Ask("Stop", berth.InstanceStopped, "Schedule", "its schedule stopped it at "+at, now)
		default:
			cur.it.Scheduled = now
		}
		return nil
	}))
}

// watch looks after an instance that is up: jobs on it, schedules, idleness, its disk.
func (k *keeper) watch(ctx context.Context, v *view) (time.Duration, error) {
	if v.it.Up() && v.node != nil {
		if state := stateFor(v.node); state != v.it.State {
			return 0, again(k.change(ctx, v, func(tx *store.Tx, now *view) error {
				if now.node == nil || !now.it.Up() || stateFor(now.node) == now.it.State {
					return nil
				}
				why := "no job runs on it"
				if stateFor(now.node) == berth.InstanceJobRunning {
					why = "a job runs on it"
				}
				now.become(tx, stateFor(now.node), why)
				return nil
			}))
		}
	}
	wait, err := k.schedules(ctx, v)
	if err != nil {
		return wait, err
	}
	if k.status == nil {
		wait = min(wait, patience)
	}
	now := time.Now()
	if now.Sub(k.measured) >= diskEvery && k.status != nil {
		k.measured = now
		if err := k.measure(ctx, v); err != nil {
			return 0, err
		}
	}
	wait = min(wait, max(time.Millisecond, diskEvery-now.Sub(k.measured)))
	idle, err := k.idle(ctx, v, now)
	return min(wait, idle), err
}

func stateFor(n *berth.Node) string {
	if n.State == berth.NodeRunning {
		return berth.InstanceJobRunning
	}
	return berth.InstanceRunning
}

// lookEvery is how often the signals are read: often enough that a short idle time is kept to.
func lookEvery(after time.Duration) time.Duration {
	return min(30*time.Second, max(500*time.Millisecond, after/5))
}

// idle reads the signals when it is time, and stops the instance when they say so.
func (k *keeper) idle(ctx context.Context, v *view, now time.Time) (time.Duration, error) {
	if d := k.look.Sub(now); d > 0 && d <= 30*time.Second {
		return d, nil
	}
	signals := k.signals(ctx, v, now)
	policy := Policy{After: v.spec.Idle, Awake: v.it.Awake, AwakeAt: v.it.AwakeAt}
	if k.awakeAt.After(policy.AwakeAt) { // not written, because that was a moment ago
		policy.Awake, policy.AwakeAt = k.awake, k.awakeAt
	}
	verdict := Idle(signals, policy, now)
	k.awake, k.awakeAt = verdict.Awake, verdict.AwakeAt
	every := lookEvery(v.spec.Idle)
	if v.spec.Idle == 0 {
		every = 30 * time.Second
	}
	k.look = now.Add(every)
	if until := verdict.StopsAt.Sub(now); !verdict.Stop && !verdict.Busy && until > 0 {
		k.look = now.Add(min(every, until))
	}
	if verdict.Stop {
		return 0, again(k.change(ctx, v, func(_ *store.Tx, cur *view) error {
			cur.it.Awake, cur.it.AwakeAt = verdict.Awake, verdict.AwakeAt
			cur.it.Ask("Stop", berth.InstanceStopped, "IdleShutdown", verdict.Reason, now)
			return nil
		}))
	}
	// What is shown of a busy one may be a minute old, or a tenth of the idle time: not every look
	// is a write.
	fresh := verdict.AwakeAt.Equal(v.it.AwakeAt) || verdict.Busy && verdict.AwakeAt.Sub(v.it.AwakeAt) < max(every, min(time.Minute, v.spec.Idle/10))
	if fresh && verdict.Awake == v.it.Awake && (verdict.StopsAt.IsZero() == v.it.StopsAt.IsZero()) {
		return k.look.Sub(now), nil
	}
	err := k.change(ctx, v, func(tx *store.Tx, cur *view) error {
		if verdict.Awake != cur.it.Awake {
			cur.emit(tx, berth.EventActivity, verdict.Awake, nil)
		}
		cur.it.Awake, cur.it.AwakeAt, cur.it.StopsAt = verdict.Awake, verdict.AwakeAt, verdict.StopsAt
		return nil
	})
	return k.look.Sub(now), err
}

// signals is everything that can keep the instance awake.
func (k *keeper) signals(ctx context.Context, v *view, now time.Time) []Signal {
	var out []Signal
	if !k.clock.IsZero() {
		// The readings of the wall and of the stopwatch differ when somebody set the clock, or the
		// machine slept.
		jump := now.Round(0).Sub(k.clock.Round(0)) - now.Sub(k.clock)
		if jump.Abs() > time.Minute {
			out = append(out, Signal{Name: "clock", Busy: true, Why: fmt.Sprintf("the machine's clock jumped by %s", jump.Round(time.Second))})
		}
	}
	k.clock = now
	if v.node != nil && v.node.State == berth.NodeRunning {
		out = append(out, Signal{Name: "jobs", Busy: true, Why: "a job runs on it"})
	}
	actx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	seen, err := k.l.o.Agent(k.dir()).Signals(actx)
	if err != nil {
		return append(out, Signal{Name: "agent", Error: err.Error()})
	}
	return append(out, seen...)
}

// diskEvery is how often an instance's files are counted, and diskWarn from which share of its disk
// on it is warned.
const (
	diskEvery = 10 * time.Minute
	diskWarn  = 90
)

// measure counts the instance's files.
func (k *keeper) measure(ctx context.Context, v *view) error {
	actx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n, err := k.l.o.Agent(k.dir()).Disk(actx)
	if err != nil {
		return nil // it is counted again later
	}
	limit := k.l.o.DiskBytes
	if n == v.it.DiskBytes && limit == v.it.DiskLimit {
		return nil
	}
	return k.change(ctx, v, func(tx *store.Tx, now *view) error {
		was := Full(now.it.DiskBytes, now.it.DiskLimit)
		now.it.DiskBytes, now.it.DiskLimit = n, limit
		if Full(n, limit) && !was {
			now.emit(tx, berth.EventWarning, DiskWarning(now.doc.Name, n, limit), nil)
		}
		return nil
	})
}

// Full says whether an instance's disk is nearly full.
func Full(used, limit int64) bool { return limit > 0 && used >= limit/100*diskWarn }

// DiskWarning says how full a disk is and how to free space on it.
func DiskWarning(name string, used, limit int64) string {
	return fmt.Sprintf("the disk of instance %s is %d %% full (%.1f of %.0f GB); remove files you do not need, for example with "+
		"`berth ssh %s -- rm -rf ~/.cache ~/.local/share/Trash`, or find large folders with `berth ssh %s -- du -xh -d2 ~`; keep data in a datastore",
		name, used*100/limit, float64(used)/1e9, float64(limit)/1e9, name, name)
}
