package serve

import (
	"slices"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

// situation is everything that decides what becomes of a deployment.
type situation struct {
	state     berth.DeploymentState
	wanted    *berth.Revision // what its document asks for; nil where that cannot be
	cannot    string          // why it cannot be
	instances int
	why       string        // there are to be so many
	timeout   time.Duration // of a request
	startup   time.Duration // that a replica may take
	jobs      map[string]jobView
	now       time.Time
}

// jobView is what is known of the job of a replica.
type jobView struct {
	exists     bool
	status     berth.JobStatus
	reason     string
	started    time.Time // when its process began
	addresses  []string  // of its workers, once all of them answer
	idle       bool      // nobody waits for an answer of it, as far as this server knows
	onlyServer bool      // no other server knows more
	tail       string    // last lines of its log, of one that has ended
}

// decision is what to do.
type decision struct {
	state berth.DeploymentState
	start []*berth.Revision // a replica of each
	stop  map[string]string // jobs to end, and why
	says  []string          // for people, as events
	again time.Duration     // when to look again; 0 is when something happens
}

// maxPause is the longest time between two replicas that take the place of ones that died.
const maxPause = time.Minute

// decide is the next step of a deployment.
//
// Replicas of what is wanted start beside those that serve. Those leave when all of the new ones
// are ready; if a new one ends before it is, the deployment has failed, and the old ones stay.
func decide(s situation) decision {
	d := decision{state: s.state, stop: map[string]string{}}
	if w := s.state.Wanted; w == nil || *w != s.instances {
		d.state.Wanted, d.state.WantedWhy = &s.instances, s.why
		if w != nil {
			d.says = append(d.says, strconv.Itoa(s.instances)+" replicas are wanted: "+s.why)
		}
	}
	d.state.Replicas = nil
	good := s.state.Good
	target := s.wanted
	if s.state.State == berth.DeploymentFailed || target == nil {
		target = good
	}
	if s.wanted == nil && s.state.State != berth.DeploymentFailed && s.state.State != berth.DeploymentSucceeded {
		d.fail(s.cannot) // what serves goes on although a part of it was deleted
	}
	for _, r := range s.state.Replicas {
		d.look(s, r, target)
	}
	if d.state.State == berth.DeploymentFailed {
		target = good
	}
	if target == nil {
		d.dropAll("the deployment has failed")
		return d
	}
	d.fill(s, target)
	d.settle(s, target)
	return d
}

// fail ends what is being deployed.
func (d *decision) fail(why string) {
	d.state.State, d.state.Error, d.state.Reason = berth.DeploymentFailed, why, "it failed"
	if d.state.Good != nil {
		d.state.Reason = "the last change failed; what was there before goes on serving"
	}
	d.says = append(d.says, why)
}

// look takes over a replica, as its job is now.
func (d *decision) look(s situation, r berth.Replica, target *berth.Revision) {
	j := s.jobs[r.Job]
	switch {
	case !j.exists || j.status.Terminal():
		if r.State != berth.ReplicaDraining {
			d.died(s, r, j, target)
		}
		return
	case r.State == berth.ReplicaDraining:
		d.drain(s, r, j)
		return
	case r.State == berth.ReplicaReady && (j.status == berth.Queued || j.status == berth.Preparing || j.started.After(r.Since)):
		r.State, r.Addresses, r.Since = berth.ReplicaStarting, nil, s.now // evicted, and started again
		d.says = append(d.says, "replica "+r.Job+" starts again: "+j.reason)
	case r.State == berth.ReplicaStarting && len(j.addresses) > 0:
		r.State, r.Addresses, r.Since = berth.ReplicaReady, j.addresses, s.now
		d.state.Deaths = 0
		d.says = append(d.says, "replica "+r.Job+" is ready")
	case r.State == berth.ReplicaStarting && !j.started.IsZero() && s.now.Sub(j.started) > s.startup:
		why := "replica " + r.Job + " did not become ready within " + s.startup.String() + tailOf(j)
		d.stop[r.Job] = why
		d.lost(s, r, why, target)
		return
	case r.State == berth.ReplicaStarting && j.status == berth.Running:
		d.soon(250 * time.Millisecond)
	}
	d.state.Replicas = append(d.state.Replicas, r)
}

// drain ends a replica once nobody waits for it.
func (d *decision) drain(s situation, r berth.Replica, j jobView) {
	since := s.now.Sub(r.Since)
	known := since > settleTime && (j.onlyServer || since > s.timeout+settleTime)
	if j.idle && known || since > max(drainTime, s.timeout+settleTime) {
		d.stop[r.Job] = "its deployment needs it no longer"
		return
	}
	d.soon(min(max(100*time.Millisecond, since/10), 2*time.Second))
	d.state.Replicas = append(d.state.Replicas, r)
}

// drainTime is the longest time that a replica keeps running for answers that have not ended. The
// timeout of a deployment limits only the time until the first byte of an answer; a stream may go
// on for longer. Where other servers may have sent requests to the replica, that timeout is all
// they get, since this server does not see them.
const drainTime = 10 * time.Minute

// settleTime is how long a server may take to notice that a replica gets no more requests.
const settleTime = time.Second

// died notes that a replica ended by itself.
func (d *decision) died(s situation, r berth.Replica, j jobView, target *berth.Revision) {
	why := "replica " + r.Job + " ended"
	switch {
	case !j.exists:
		why = "the job of replica " + r.Job + " was deleted"
	case j.reason != "":
		why += ": " + j.reason
	}
	d.lost(s, r, why+tailOf(j), target)
}

// lost notes that a replica is no more. One that never was ready ends what is being deployed.
func (d *decision) lost(s situation, r berth.Replica, why string, target *berth.Revision) {
	d.state.DeathWhy = why
	unproven := s.state.Good == nil || r.Revision != s.state.Good.ID
	if r.State == berth.ReplicaStarting && unproven && target != nil && r.Revision == target.ID && d.state.State != berth.DeploymentFailed {
		d.fail(why)
		return
	}
	d.state.Deaths++
	d.state.LastDeath = s.now
	d.says = append(d.says, why)
}

func tailOf(j jobView) string {
	if j.tail == "" {
		return ""
	}
	return "; the last lines of its log:\n" + j.tail
}

// fill starts replicas that are missing, and lets those go that are too many.
func (d *decision) fill(s situation, target *berth.Revision) {
	have := 0
	for _, state := range []string{berth.ReplicaReady, berth.ReplicaStarting} { // those that serve stay first
		for i := range d.state.Replicas {
			r := &d.state.Replicas[i]
			if r.Revision != target.ID || r.State != state {
				continue
			}
			if have++; have > s.instances {
				d.release(s, r)
			}
		}
	}
	if have >= s.instances {
		return
	}
	if pause := d.state.LastDeath.Add(pauseAfter(d.state.Deaths)).Sub(s.now); pause > 0 {
		d.soon(pause)
		return
	}
	for ; have < s.instances; have++ {
		d.start = append(d.start, target)
	}
}

// settle lets the replicas of other revisions go once those of the target are ready.
func (d *decision) settle(s situation, target *berth.Revision) {
	ready := 0
	for _, r := range d.state.Replicas {
		if r.Revision == target.ID && r.State == berth.ReplicaReady {
			ready++
		}
	}
	if ready < s.instances {
		return
	}
	for i := range d.state.Replicas {
		if r := &d.state.Replicas[i]; r.Revision != target.ID && r.State != berth.ReplicaDraining {
			d.release(s, r)
		}
	}
	if d.state.State == berth.DeploymentFailed {
		return
	}
	if d.state.Good == nil || d.state.Good.ID != target.ID {
		d.state.Previous, d.state.Good = d.state.Good, target
	}
	if d.state.State != berth.DeploymentSucceeded {
		d.state.State, d.state.Error, d.state.Reason = berth.DeploymentSucceeded, "", "all replicas are ready"
		d.says = append(d.says, d.state.Reason)
	}
}

// release takes a replica out of the traffic; one that never was in it is stopped.
func (d *decision) release(s situation, r *berth.Replica) {
	r.State, r.Since = berth.ReplicaDraining, s.now
	d.soon(100 * time.Millisecond)
}

// dropAll stops everything.
func (d *decision) dropAll(why string) {
	for _, r := range d.state.Replicas {
		d.stop[r.Job] = why
	}
	d.state.Replicas = nil
}

func (d *decision) soon(t time.Duration) {
	if t == 0 {
		return
	}
	if d.again == 0 || t < d.again {
		d.again = t
	}
}

// changed says whether there is anything to write.
func (d *decision) changed(before berth.DeploymentState) bool {
	return len(d.start)+len(d.stop)+len(d.says) > 0 || d.state.State != before.State || !sameCount(d.state.Wanted, before.Wanted) || !slices.EqualFunc(d.state.Replicas, before.Replicas, func(a, b berth.Replica) bool {
		return a.Job == b.Job && a.State == b.State && slices.Equal(a.Addresses, b.Addresses)
	})
}

func sameCount(a, b *int) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// pauseAfter is how long to wait after the nth replica in a row that died.
func pauseAfter(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return min(time.Second<<min(n-2, 10), maxPause)
}
