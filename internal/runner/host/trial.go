package host

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// A task whose command has begun may end the worker too, by a bug that shows when it is taken up:
// then each worker would end the same way, for ever. Such tasks must not be given up lightly, so
// only ends count that were a worker's own (a panic, not a kill), one after the other. After a few
// the tasks are taken up one by one, and the journal says which it is. The one during whose trial
// the worker ended is the first of the next worker's: if that ends too it was its fault, and if not
// it was another's.

const (
	// mostPanics is how many workers may end by themselves, one soon after the other, before tasks
	// are taken up one by one.
	mostPanics = 2
	// trialFor is for how long a task that is taken up is watched: what it uploads while it runs
	// is looked for within that.
	trialFor = 20 * time.Second
	// wellAfter is when a worker that lives is well.
	wellAfter = time.Minute
)

// panicked notes that the worker before this one ended by itself.
func (j *journal) panicked() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.panics++
	return j.writeLine(line{Panics: j.panics})
}

// well notes that workers live.
func (j *journal) well() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.panics == 0 {
		return nil
	}
	j.panics, j.trying = 0, ""
	return j.writeLine(line{Well: true})
}

// try notes which task is taken up by itself; none with an empty id.
func (j *journal) try(id berth.TaskID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trying = id
	return j.writeLine(line{Trying: &id})
}

func (j *journal) writeLine(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return j.write(append(b, '\n'))
}

// blamed is the task that the last worker was taking up by itself when it ended by itself; empty
// where there was none.
func (w *worker) blamed() (id berth.TaskID) {
	w.journal.mu.Lock()
	id = w.journal.trying
	w.journal.mu.Unlock()
	if id == "" {
		return ""
	}
	if err := w.journal.try(""); err != nil {
		w.log.Error("that no task is taken up is not kept", "err", err)
	}
	if !w.panicked {
		return ""
	}
	return id
}

// blame counts the end of the last worker against the task that it was taking up by itself, and
// gives up one that ended too many. Others are not to blame.
func (w *worker) blame(id berth.TaskID, e *entry) {
	e.deaths++
	if err := w.journal.died(id, e.deaths); err != nil {
		w.log.Error("the end of a worker is not counted", "task", id, "err", err)
	}
	if e.deaths < mostDeaths {
		return
	}
	w.log.Error("a task ends the worker when it is taken up, and is given up", "task", id, "deaths", e.deaths)
	const why = "the node's runner ended several times when it took this task up again"
	exit := &berth.Exit{Code: -1, Cause: "lost", Reason: why + "; host.log on the node says more"}
	if e.mark.Step == runner.StepExited && e.mark.Exit != nil {
		was := *e.mark.Exit
		if exit = &was; was.OK() {
			exit.Cause, exit.Reason = "upload", why+", while it kept what the command left: not all of that was kept; host.log on the node says more"
		}
	}
	e.mark.Step, e.mark.Exit, e.mark.Times.Ended = runner.StepDone, exit, time.Now()
}

// onTrial takes a task up by itself; over has to be called when the task is over. ok is false when
// the worker ends.
func (w *worker) onTrial(id berth.TaskID) (over func(), ok bool) {
	first := id == w.firstTrial
	if !first {
		select {
		case <-w.firstOver:
		case <-w.ctx.Done():
			return nil, false
		}
	}
	select {
	case w.trial <- struct{}{}:
	case <-w.ctx.Done():
		return nil, false
	}
	if err := w.journal.try(id); err != nil {
		w.log.Error("a task is taken up and not noted", "task", id, "err", err)
	}
	over = sync.OnceFunc(func() {
		if w.ctx.Err() == nil {
			_ = w.journal.try("")    // the next one is noted in its place
			_ = w.journal.passed(id) // else it is found out again
		}
		if first {
			close(w.firstOver)
		}
		w.trials.Add(-1)
		<-w.trial
	})
	time.AfterFunc(trialFor, over)
	return over, true
}

// getWell notes that this worker lives, when all tasks have been taken up.
func (w *worker) getWell(ctx context.Context) {
	tick := time.NewTicker(wellAfter)
	defer tick.Stop()
	for first := true; first || w.trials.Load() > 0; first = false {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	if err := w.journal.well(); err != nil {
		w.log.Warn("that the worker is well is not kept", "err", err)
	}
}
