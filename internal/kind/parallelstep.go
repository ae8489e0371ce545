package kind

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// mostLost is how many tasks of a job may be lost with their nodes before it is given up.
const mostLost = 50

// Step starts as many tasks as the job has nodes, and others for those that were taken away or
// failed in the middle of a mini-batch, as long as there is something to do. The last of them
// writes the result.
func (k parallel) Step(j Job, tasks []*berth.Task) Step {
	s := Step{Status: j.Status, State: j.State}
	if j.Status.Terminal() {
		return s
	}
	if len(tasks) == 0 && j.State.Cancel {
		s.Status, s.State.Reason = berth.Canceled, "canceled before it was scheduled"
		s.stopped()
		return s
	}
	w := j.Work
	if w == nil {
		w = &berth.Work{}
	}
	if w.Batches > 0 {
		s.State.Work = publicWork(w)
	}
	g := gang(tasks)
	live := slices.DeleteFunc(slices.Clone(g), func(t *berth.Task) bool { return t.State == berth.TaskDone })
	failed := k.failure(w)
	written := w.Writer != "" && w.Ended() && slices.ContainsFunc(tasks, func(t *berth.Task) bool {
		return t.ID == w.Writer && t.State == berth.TaskDone && t.Exit.OK()
	})
	if len(tasks) > 0 {
		s.State.Times, s.State.Usage, s.State.Exit = pullTimes(tasks), g.usage(), nil
		s.State.Times.Submitted = j.State.Times.Submitted
	}
	stop := j.State.Cancel || failed != ""
	switch {
	case (stop || written) && len(live) > 0:
		s.Stop = live.toStop(true)
		if written && !stop {
			s.Stop = unstarted(live).toStop(true)
		}
		s.Status, s.State.Reason = live.status(live, 0)
		if j.State.Cancel {
			s.Status = berth.CancelRequested
		} else if failed != "" {
			s.State.Reason = failed
		}
	case written:
		s.Status, s.State.Reason = berth.Completed, ended(w)
		s.State.Exit = &berth.Exit{}
	case failed != "" && !j.State.Cancel:
		s.Status, s.State.Reason = berth.Failed, failed
		s.State.Exit = exitOf(tasks, failed)
	case stop:
		s.Status, s.State.Reason = berth.Canceled, "canceled by the user"
		s.State.Exit = &berth.Exit{Code: -1, Cause: "canceled", Reason: s.State.Reason}
		s.stopped()
	default:
		s.Start = k.tasksFor(j, w, tasks, len(live))
		for i := range s.Start {
			live = append(live, &s.Start[i])
		}
		s.Status, s.State.Reason = live.status(live, 0)
		if len(live) == len(s.Start) {
			s.Status = berth.Queued
		}
		if w.Batches > 0 && s.Status == berth.Running {
			s.State.Reason = pulled(w)
		}
		s.State.Times.Ended = time.Time{}
	}
	return s
}

// unstarted are the tasks whose processes have not begun. Those that run have nothing more to do
// and end by themselves, and one that ends may be keeping the files that its script wrote: it must
// not be stopped for a job that does well.
func unstarted(g gang) gang {
	return slices.DeleteFunc(slices.Clone(g), func(t *berth.Task) bool { return !t.State.Before(berth.TaskRunning) })
}

// publicWork is what others see of the work: not the book-keeping.
func publicWork(w *berth.Work) *berth.Work {
	c := *w
	c.Settled = nil
	return &c
}

// failure is why the job fails, empty where it does not.
func (parallel) failure(w *berth.Work) string {
	if w.Error != "" {
		return w.Error
	}
	if w.Lost > mostLost {
		return fmt.Sprintf("%d of its tasks were lost with their nodes", w.Lost)
	}
	return ""
}

// tasksFor are the tasks that are to be started. Each is an attempt of its own.
func (parallel) tasksFor(j Job, w *berth.Work, tasks []*berth.Task, live int) []berth.Task {
	var n nodes
	_ = json.Unmarshal(j.Props, &n) // it was valid when the job was taken
	count := min(max(n.count(), 1), mostNodes)
	replaced := 0
	for _, t := range tasks {
		if t.State == berth.TaskDone && !t.Exit.OK() {
			replaced++
		}
	}
	more := min(count+replaced-len(tasks), count-live)
	if w.Batches > 0 {
		more = min(more, w.Waiting)
	}
	if more <= 0 && live == 0 {
		more = 1 // somebody has to write the result, or to do what was left
	}
	priority, spot, _ := n.queue()
	var out []berth.Task
	for i := range max(0, more) {
		number := len(tasks) + i + 1
		out = append(out, berth.Task{
			ID: berth.TaskID(fmt.Sprintf("%s.%d", j.Key, number)), Attempt: number, Compute: j.State.Compute, Priority: priority, Spot: spot,
		})
	}
	return out
}

// pullTimes are those of the first task, but the job has ended when all have.
func pullTimes(tasks []*berth.Task) berth.Waterfall {
	w := tasks[0].Times
	w.Ended = time.Time{}
	for _, t := range tasks {
		if t.State != berth.TaskDone {
			w.Ended = time.Time{}
			break
		}
		if t.Times.Ended.After(w.Ended) {
			w.Ended = t.Times.Ended
		}
	}
	return w
}

// exitOf is the exit of the first task that failed by itself.
func exitOf(tasks []*berth.Task, reason string) *berth.Exit {
	if t := gang(tasks).failed(); t != nil {
		return t.Exit
	}
	return &berth.Exit{Code: 1, Reason: reason}
}

// pulled is the reason of a job that runs.
func pulled(w *berth.Work) string {
	text := fmt.Sprintf("%d of %d mini-batches have ended, and %d are worked on", w.Done+w.Failed, w.Batches, w.Running)
	if w.Ended() {
		text = fmt.Sprintf("%s; the result is being written", all(w.Batches, "has ended", "have ended"))
	}
	if w.Failed > 0 {
		text += fmt.Sprintf("; %d failed", w.Failed)
	}
	return text
}

// amount is a number of things.
func amount(n int, word string) string {
	switch {
	case n == 1:
		return "1 " + word
	case strings.HasSuffix(word, "ch"):
		word += "e"
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// have is what a number of things have done, up to the verb.
func have(n int, word string) string {
	if n == 1 {
		return amount(n, word) + " has"
	}
	return amount(n, word) + " have"
}

// all says what all mini-batches did, in the words for one and for several.
func all(n int, one, several string) string {
	if n == 1 {
		return "the only mini-batch " + one
	}
	return fmt.Sprintf("all %d mini-batches %s", n, several)
}

// ended is the reason of a job that has completed.
func ended(w *berth.Work) string {
	were := "were"
	if w.Done == 1 {
		were = "was"
	}
	text := fmt.Sprintf("%s with %s %s worked on", amount(w.Done, "mini-batch"), amount(w.Items, "item"), were)
	if w.FailedItems > 0 {
		text += fmt.Sprintf("; %s failed, which its error_threshold allows; the last: %s", amount(w.FailedItems, "item"), orElse(w.LastError, "no reason"))
	}
	return text
}
