package host

import (
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// A task whose preparation ends the worker, by a bug or for want of memory, would be taken up by
// the next worker and end that too. So it is counted how often a worker died while it prepared a
// task. One that was there when it happened is a suspect: before it is prepared again the server is
// asked whether it is still wanted, and suspects are prepared one after the other, so that the next
// death shows which it was.

const (
	// mostDeaths is how many workers a task may end.
	mostDeaths = 2
	// aloneFor is for how long a suspect is prepared without other suspects: a long preparation
	// must not hold them up for ever.
	aloneFor = 2 * time.Minute
	// longestAsk is for how long a server is asked that does not answer.
	longestAsk = 10 * time.Second
)

// countDeath counts the death of the last worker against a task that it was preparing, and gives up
// one that ended too many.
func (w *worker) countDeath(id berth.TaskID, e *entry) {
	e.deaths++
	if err := w.journal.died(id, e.deaths); err != nil {
		w.log.Error("the death of a worker is not counted", "task", id, "err", err)
	}
	if e.deaths >= mostDeaths {
		w.log.Error("a task ends the worker and is given up", "task", id, "deaths", e.deaths)
		e.mark.Step, e.mark.Times.Ended = runner.StepDone, time.Now()
		e.mark.Exit = &berth.Exit{Code: -1, Cause: "staging", Reason: "the node's runner ended twice while it prepared this task, " +
			"perhaps for want of memory: its inputs or its environment may be too large for the node; host.log on the node says more"}
	}
}

// vet holds a suspect back until it may be prepared; done has to be called when it has been. ok is
// false when the worker ends.
func (w *worker) vet(j *job, h *home, seq int) (done func(), ok bool) {
	stopped := make(chan struct{})
	var once sync.Once
	j.control.OnStop(func() { once.Do(func() { close(stopped) }) })
	defer j.control.OnStop(nil)
	select {
	case w.turn <- struct{}{}:
	case <-stopped:
		return func() {}, true
	case <-w.ctx.Done():
		return nil, false
	}
	done = sync.OnceFunc(func() { <-w.turn })
	time.AfterFunc(aloneFor, done)
	w.mu.Lock()
	asked := j.asked
	w.mu.Unlock()
	if h == nil || asked == nil {
		return done, true
	}
	h.Send(w.ctx, berth.Report{
		Task: j.launch.Task, Token: j.launch.Home.Token, Seq: seq, At: time.Now(), State: berth.TaskStarting, Phase: "staging",
		Warning: "the node's runner ended while it prepared this task: it is prepared once more",
	})
	timer := time.NewTimer(longestAsk)
	defer timer.Stop()
	select {
	case <-asked:
	case <-stopped:
	case <-timer.C:
	case <-w.ctx.Done():
		done()
		return nil, false
	}
	return done, true
}
