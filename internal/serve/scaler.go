package serve

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
)

// A scaler is what a keeper remembers of the requests for its deployment.
type scaler struct {
	born     time.Time
	demanded atomic.Int64 // when another server said last that requests wait or came, in nanoseconds
	needs    []need
	before   berth.ServingStats
	at       time.Time // when before was read
}

// scale is how many replicas there should be now, why, and when to look again.
func (k *keeper) scale(spec Spec, v *view) (n int, why string, again time.Duration) {
	if !spec.Scale.Follows {
		return spec.Instances, "instance_count asks for so many", 0
	}
	z, now := &k.scaler, time.Now()
	if z.born.IsZero() {
		z.born = now
	}
	seen := k.l.o.Load(k.key.workspace, k.key.endpoint, k.key.deployment)
	d := demand{now: seen.Waiting, last: seen.Last}
	if past := now.Sub(z.at); !z.at.IsZero() && past > 0 {
		d.atWork = max(0, seen.BusySeconds-z.before.BusySeconds) / past.Seconds()
		d.waiting = max(0, seen.QueuedSeconds-z.before.QueuedSeconds) / past.Seconds()
	}
	waking := !slices.ContainsFunc(v.state.Replicas, func(r berth.Replica) bool { return r.State == berth.ReplicaReady })
	short := now.Sub(z.at) < minSpan // for an average
	if waking || short {
		d.atWork, d.waiting = 0, 0 // how long requests take is known once a replica answers them
	}
	if waking || !short {
		z.before, z.at = seen, now
	}
	has := min(max(spec.Instances, spec.Scale.Min), spec.Scale.Max)
	if v.state.Wanted != nil {
		has = *v.state.Wanted
	}
	if has > 0 && d.last.Before(z.born) {
		d.last = z.born // what came before this server started is not known
	}
	z.hear(&d, now)
	proving := spec.Instances > 0 && (v.state.State == berth.DeploymentCreating || v.state.State == berth.DeploymentUpdating)
	if len(z.needs) == 0 {
		z.needs = []need{{has, now}}
	}
	n, why, z.needs, again = spec.Scale.want(has, spec.Workers, d, z.needs, proving, now)
	if short && !waking && seen.InFlight+seen.Waiting > 0 {
		again = minSpan
	}
	return n, why, again
}

// hear adds what other servers said.
func (z *scaler) hear(d *demand, now time.Time) {
	at := time.Unix(0, z.demanded.Load())
	if now.Sub(at) < demandTime {
		d.now = max(d.now, 1)
	}
	if at.After(d.last) {
		d.last = at
	}
}

// minSpan is the shortest time that load is averaged over, and demandTime how long it counts that
// another server has requests.
const (
	minSpan    = 200 * time.Millisecond
	demandTime = 10 * time.Second
)

// Demand says that requests wait for a deployment, or come, and that it may need more replicas.
func (l *Loop) Demand(workspace, endpoint, deployment string) {
	k := keyOf(workspace, endpoint+"/"+deployment)
	l.mu.Lock()
	kp := l.keepers[k]
	l.mu.Unlock()
	if kp == nil {
		return // it does not exist, or is looked at anyway
	}
	select {
	case kp.wake <- struct{}{}:
	default:
	}
}

// demanded notes that another server has requests.
func (l *Loop) demanded(k key, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kp := l.keepers[k]; kp != nil {
		kp.scaler.demanded.Store(at.UnixNano())
	}
}
