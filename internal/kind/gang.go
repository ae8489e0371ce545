package kind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/berthml/berth"
)

// gang is the tasks of one attempt at a job, one for each node, in the order of their ranks.
type gang []*berth.Task

// stopped says why a canceled job was, where it was not its user who wanted that.
func (s *Step) stopped() {
	st := &s.State
	if s.Status != berth.Canceled || st.StopCause == "" {
		return
	}
	st.Reason = st.StopWhy
	if st.Exit != nil {
		e := *st.Exit
		e.Cause, e.Reason = st.StopCause, st.StopWhy
		st.Exit = &e
	}
}

// attemptOf is the tasks of an attempt. The first has the id of the attempt, the others the rank
// after it.
func attemptOf(j Job, attempt int) []berth.Task {
	var n nodes
	_ = json.Unmarshal(j.Props, &n) // it was valid when the job was taken
	priority, spot, _ := n.queue()
	if j.State.Serves != "" {
		priority = berth.ServePriority
	}
	count := min(max(n.count(), 1), mostNodes)
	all := make([]berth.Task, count)
	for rank := range all {
		id := fmt.Sprintf("%s.%d", j.Key, attempt)
		if rank > 0 {
			id = fmt.Sprintf("%s-%d", id, rank)
		}
		all[rank] = berth.Task{
			ID: berth.TaskID(id), Attempt: attempt, Rank: rank, Count: count, Compute: j.State.Compute, Priority: priority, Spot: spot,
			Serves: j.State.Serves != "",
		}
	}
	return all
}

// lastAttempt picks the tasks of the last attempt.
func lastAttempt(tasks []*berth.Task) (g gang, attempt int) {
	for _, t := range tasks {
		if t.Attempt > attempt {
			g, attempt = nil, t.Attempt
		}
		if t.Attempt == attempt {
			g = append(g, t)
		}
	}
	slices.SortFunc(g, func(a, b *berth.Task) int { return cmp.Compare(a.Rank, b.Rank) })
	return g, attempt
}

func (g gang) all(f func(*berth.Task) bool) bool {
	return !slices.ContainsFunc(g, func(t *berth.Task) bool { return !f(t) })
}

// evicted is a task whose node was taken away from it, nil when there is none. What ended by
// itself, well or not, before it could be stopped was not evicted; nor was one that was already
// being stopped because another had failed. A task that may be stopped for other work and vanished
// has lost its node, also when its peers noticed first and it was asked to end for that.
func (g gang) evicted() *berth.Task {
	failed := g.failed()
	for _, t := range g {
		if !t.Evict || t.Stop && failed != nil {
			if t.State == berth.TaskDone && t.Exit != nil && (t.Exit.Cause == "evicted" && !t.Stop || t.Exit.Cause == "lost" && t.Spot) {
				return t
			}
			continue
		}
		if t.State != berth.TaskDone || t.Exit != nil && t.Exit.Cause != "" {
			return t
		}
		// It ended by itself just in time; its peers may have been stopped in vain.
		if t.Exit.OK() && failed == nil && slices.ContainsFunc(g, broken) {
			return t
		}
	}
	return nil
}

// whyEvicted is the reason, for people.
func whyEvicted(t *berth.Task) string {
	switch {
	case t.Exit != nil && t.Exit.Cause == "lost":
		return orElse(t.Exit.Reason, "its node was lost")
	case t.Evict && t.Why != "":
		return t.Why
	case t.Exit != nil && t.Exit.Cause == "evicted" && t.Exit.Reason != "":
		return t.Exit.Reason
	}
	return "its node was preempted"
}

// failed is the task that failed first, nil when none did by itself.
func (g gang) failed() *berth.Task {
	var first *berth.Task
	for _, t := range g {
		if broken(t) && !follows(t) && (first == nil || endsBefore(t, first)) {
			first = t
		}
	}
	return first
}

// follows says that a task ended because another one had, or because it was asked to.
func follows(t *berth.Task) bool {
	if t.Exit == nil {
		return false
	}
	switch t.Exit.Cause {
	case "peer", "canceled", "evicted":
		return true
	case "lost":
		return t.Stop || t.Evict
	}
	return false
}

func endsBefore(a, b *berth.Task) bool {
	if x, y := a.Times.Ended, b.Times.Ended; !x.Equal(y) {
		return !x.IsZero() && (y.IsZero() || x.Before(y))
	}
	return false // the lower rank stays first
}

// toStop lists the tasks that are to end and have not been asked to.
func (g gang) toStop(cancel bool) []berth.TaskID {
	var ids []berth.TaskID
	for _, t := range g {
		if t.State != berth.TaskDone && !t.Stop && (cancel || !t.Evict) { // what is evicted is being stopped
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// decisive is the task whose end is the job's, once all have ended: the first that failed by
// itself; else one that was asked to end; else, when all ended well, the first node's.
func (g gang) decisive() *berth.Task {
	if t := g.failed(); t != nil {
		return t
	}
	if i := slices.IndexFunc(g, broken); i >= 0 {
		return g[i]
	}
	return g[0]
}

// broken says that a task has ended, and not well.
func broken(t *berth.Task) bool { return t.State == berth.TaskDone && !t.Exit.OK() }

// status is that of a job whose attempt has not ended: running as soon as one of its tasks is, and
// as long as one is.
func (g gang) status(tasks []*berth.Task, attempt int) (berth.JobStatus, string) {
	slowest := slices.MinFunc(g, func(a, b *berth.Task) int { return compareStates(a.State, b.State) })
	fastest := slices.MaxFunc(g, func(a, b *berth.Task) int { return compareStates(a.State, b.State) })
	switch {
	case !slowest.State.Before(berth.TaskEnding):
		return berth.Finalizing, slowest.Why
	case !fastest.State.Before(berth.TaskRunning):
		i := slices.IndexFunc(g, func(t *berth.Task) bool { return t.State == berth.TaskRunning })
		if i < 0 {
			return berth.Running, slowest.Why
		}
		return berth.Running, g[i].Why
	case slowest.State == berth.TaskWaiting:
		why := slowest.Why
		if attempt > 1 {
			if before, _ := lastAttempt(slices.DeleteFunc(slices.Clone(tasks), func(t *berth.Task) bool { return t.Attempt >= attempt })); len(before) > 0 {
				if e := before.evicted(); e != nil {
					why = fmt.Sprintf("attempt %d, because of attempt %d: %s; %s", attempt, e.Attempt, whyEvicted(e), orElse(why, "it is waiting to be scheduled"))
				}
			}
		}
		return berth.Queued, why
	}
	return berth.Preparing, slowest.Why
}

func compareStates(a, b berth.TaskState) int {
	switch {
	case a.Before(b):
		return -1
	case b.Before(a):
		return 1
	}
	return 0
}

// times are those of the first node, but the job has started when its last node has, and ended when
// all have.
func (g gang) times() berth.Waterfall {
	w := g[0].Times
	if len(g) == 1 {
		return w
	}
	latest := func(f func(*berth.Waterfall) time.Time) (at time.Time) {
		for _, t := range g {
			x := f(&t.Times)
			if x.IsZero() {
				return time.Time{}
			}
			if x.After(at) {
				at = x
			}
		}
		return at
	}
	w.Started = latest(func(w *berth.Waterfall) time.Time { return w.Started })
	w.Ended = latest(func(w *berth.Waterfall) time.Time { return w.Ended })
	return w
}

// usage is the peaks of the largest task, each by itself: what one node needs.
func (g gang) usage() berth.Usage {
	u := g[0].Usage
	for _, t := range g[1:] {
		v := t.Usage
		if v.At.After(u.At) {
			u.At = v.At
		}
		u.CPUSeconds, u.CPUPercent = max(u.CPUSeconds, v.CPUSeconds), max(u.CPUPercent, v.CPUPercent)
		u.MemoryBytes, u.GPUMemory = max(u.MemoryBytes, v.MemoryBytes), max(u.GPUMemory, v.GPUMemory)
		u.ReadBytes, u.WriteBytes = max(u.ReadBytes, v.ReadBytes), max(u.WriteBytes, v.WriteBytes)
		u.NetRxBytes, u.NetTxBytes = max(u.NetRxBytes, v.NetRxBytes), max(u.NetTxBytes, v.NetTxBytes)
		u.GPUPercent = max(u.GPUPercent, v.GPUPercent)
	}
	return u
}
