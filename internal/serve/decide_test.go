package serve

import (
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
)

var (
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	old  = &berth.Revision{ID: "old"}
	next = &berth.Revision{ID: "next"}
)

// serving is a deployment whose replicas run old.
func serving(jobs ...string) situation {
	s := situation{
		state:  berth.DeploymentState{State: berth.DeploymentSucceeded, Good: old},
		wanted: old, instances: len(jobs), timeout: 5 * time.Second, startup: time.Minute, jobs: map[string]jobView{}, now: noon,
	}
	n := len(jobs)
	s.state.Wanted = &n
	for _, j := range jobs {
		s.state.Replicas = append(s.state.Replicas, berth.Replica{Job: j, Revision: "old", State: berth.ReplicaReady, Addresses: []string{"at-" + j}, Since: noon})
		s.jobs[j] = jobView{exists: true, status: berth.Running, started: noon, idle: true}
	}
	return s
}

// states are the replicas in words.
func states(d decision) string {
	var all []string
	for _, r := range d.state.Replicas {
		all = append(all, r.Job+" "+r.State)
	}
	for _, r := range d.start {
		all = append(all, "start "+r.ID)
	}
	for j := range d.stop {
		all = append(all, "stop "+j)
	}
	return strings.Join(all, ", ")
}

func check(t *testing.T, d decision, state, replicas string) {
	t.Helper()
	if d.state.State != state || states(d) != replicas {
		t.Errorf("%s: %s; want %s: %s", d.state.State, states(d), state, replicas)
	}
}

func TestDecideSteady(t *testing.T) {
	d := decide(serving("a", "b"))
	check(t, d, berth.DeploymentSucceeded, "a ready, b ready")
	if d.changed(serving("a", "b").state) {
		t.Error("something is to be written")
	}
}

// TestDecideRollout: new replicas start beside the old ones, which leave when all the new are ready
// and stop when they are idle.
func TestDecideRollout(t *testing.T) {
	s := serving("a")
	s.wanted, s.state.State = next, berth.DeploymentUpdating
	check(t, decide(s), berth.DeploymentUpdating, "a ready, start next")

	s.state.Replicas = append(s.state.Replicas, berth.Replica{Job: "n", Revision: "next", State: berth.ReplicaStarting})
	s.jobs["n"] = jobView{exists: true, status: berth.Running, started: noon}
	check(t, decide(s), berth.DeploymentUpdating, "a ready, n starting")

	s.jobs["n"] = jobView{exists: true, status: berth.Running, started: noon, addresses: []string{"x"}}
	d := decide(s)
	check(t, d, berth.DeploymentSucceeded, "a draining, n ready")
	if d.state.Good.ID != "next" || d.state.Previous.ID != "old" {
		t.Errorf("good %v, previous %v", d.state.Good, d.state.Previous)
	}

	s.state = d.state
	s.jobs["a"] = jobView{exists: true, status: berth.Running, idle: false}
	s.now = noon.Add(2 * time.Second)
	check(t, decide(s), berth.DeploymentSucceeded, "a draining, n ready")
	s.jobs["a"] = jobView{exists: true, status: berth.Running, idle: true, onlyServer: true}
	check(t, decide(s), berth.DeploymentSucceeded, "n ready, stop a")
	s.jobs["a"] = jobView{exists: true, status: berth.Running, idle: true} // another server may have sent it a request
	check(t, decide(s), berth.DeploymentSucceeded, "a draining, n ready")
	s.now = noon.Add(7 * time.Second) // to which it had to begin an answer by now
	check(t, decide(s), berth.DeploymentSucceeded, "n ready, stop a")
	s.jobs["a"] = jobView{exists: true, status: berth.Running, onlyServer: true}
	s.now = noon.Add(time.Minute) // a stream goes on
	check(t, decide(s), berth.DeploymentSucceeded, "a draining, n ready")
	s.now = noon.Add(11 * time.Minute) // but not for ever
	check(t, decide(s), berth.DeploymentSucceeded, "n ready, stop a")
}

// TestDecideFailedRollout: a new replica that ends before it is ready fails the deployment, and
// what served before goes on.
func TestDecideFailedRollout(t *testing.T) {
	s := serving("a")
	s.wanted, s.state.State = next, berth.DeploymentUpdating
	s.state.Replicas = append(s.state.Replicas, berth.Replica{Job: "n", Revision: "next", State: berth.ReplicaStarting})
	s.jobs["n"] = jobView{exists: true, status: berth.Failed, reason: "exit code 3", tail: "no such file"}
	d := decide(s)
	check(t, d, berth.DeploymentFailed, "a ready")
	if !strings.Contains(d.state.Error, "exit code 3") || !strings.Contains(d.state.Error, "no such file") {
		t.Errorf("it says %q", d.state.Error)
	}
	s.state = d.state
	check(t, decide(s), berth.DeploymentFailed, "a ready")
	s.jobs["a"] = jobView{exists: true, status: berth.Failed} // and what served is replaced
	check(t, decide(s), berth.DeploymentFailed, "start old")
}

func TestDecideSlowStart(t *testing.T) {
	s := serving()
	s.wanted, s.state, s.instances = next, berth.DeploymentState{State: berth.DeploymentCreating}, 1
	s.state.Replicas = []berth.Replica{{Job: "n", Revision: "next", State: berth.ReplicaStarting}}
	s.jobs["n"] = jobView{exists: true, status: berth.Running, started: noon}
	s.now = noon.Add(59 * time.Second)
	check(t, decide(s), berth.DeploymentCreating, "n starting")
	s.now = noon.Add(61 * time.Second)
	check(t, decide(s), berth.DeploymentFailed, "stop n")
}

// TestDecideDeath: a replica that dies is replaced at once, and after several deaths in a row with
// growing pauses.
func TestDecideDeath(t *testing.T) {
	s := serving("a", "b")
	s.jobs["a"] = jobView{exists: true, status: berth.Failed, reason: "killed by SIGKILL"}
	d := decide(s)
	check(t, d, berth.DeploymentSucceeded, "b ready, start old")
	if !strings.Contains(d.state.DeathWhy, "SIGKILL") {
		t.Errorf("it says %q", d.state.DeathWhy)
	}
	s.state = d.state
	s.state.Deaths, s.state.LastDeath = 5, noon
	d = decide(s)
	check(t, d, berth.DeploymentSucceeded, "b ready")
	if d.again != 8*time.Second {
		t.Errorf("again in %v", d.again)
	}
	s.now = noon.Add(9 * time.Second)
	check(t, decide(s), berth.DeploymentSucceeded, "b ready, start old")
}

func TestDecideScale(t *testing.T) {
	s := serving("a", "b")
	s.instances = 1
	check(t, decide(s), berth.DeploymentSucceeded, "a ready, b draining")
	s.instances = 0
	check(t, decide(s), berth.DeploymentSucceeded, "a draining, b draining")
	s.instances = 3
	check(t, decide(s), berth.DeploymentSucceeded, "a ready, b ready, start old")
}

// TestDecideEvicted: a replica that control starts again elsewhere gets no requests until it is
// ready again.
func TestDecideEvicted(t *testing.T) {
	s := serving("a")
	s.jobs["a"] = jobView{exists: true, status: berth.Queued}
	d := decide(s)
	check(t, d, berth.DeploymentSucceeded, "a starting")
	if len(d.state.Replicas[0].Addresses) != 0 {
		t.Error("it keeps its address")
	}
}

// TestDecideModelDeleted: what serves goes on when its model is deleted; a change that needs it
// fails.
func TestDecideModelDeleted(t *testing.T) {
	s := serving("a")
	s.wanted, s.cannot = nil, "there is no model"
	check(t, decide(s), berth.DeploymentSucceeded, "a ready")
	s.state.State = berth.DeploymentUpdating
	check(t, decide(s), berth.DeploymentFailed, "a ready")
}

// TestDecideNextAttempt: a replica whose process was started again after it was ready is asked
// again where it listens.
func TestDecideNextAttempt(t *testing.T) {
	s := serving("a")
	s.jobs["a"] = jobView{exists: true, status: berth.Running, started: noon.Add(time.Second)}
	check(t, decide(s), berth.DeploymentSucceeded, "a starting")
}

// TestDecideScaleDownKeepsReady: of a replica that serves and one that starts, the first stays.
func TestDecideScaleDownKeepsReady(t *testing.T) {
	s := serving("a")
	s.state.Replicas = append([]berth.Replica{{Job: "n", Revision: "old", State: berth.ReplicaStarting}}, s.state.Replicas...)
	s.jobs["n"] = jobView{exists: true, status: berth.Preparing}
	check(t, decide(s), berth.DeploymentSucceeded, "n draining, a ready")
}
