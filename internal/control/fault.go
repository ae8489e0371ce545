package control

import (
	"context"
	"fmt"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/store"
)

// One job must not hold up the others. A cycle notes which job it works on; when that panics, or
// fails again and again, the transaction is undone and the cycle is run again, and in it the job
// has a fault: what runs of it is stopped, and it ends with the reason. A job that cannot even be
// ended is left alone.

// patientFor is how long a cycle that fails at the same job is run again before that is taken for a
// fault of the job: a disk that is full or a limit of open files is not. A panic is at once.
const patientFor = 30 * time.Second

// fault is what is wrong with a job.
type fault struct {
	why     string
	since   time.Time // of the first failure
	ends    bool      // the job is to end for it
	ignored bool      // it cannot even be ended
}

// blame notes that a cycle failed at a job, and reports whether the job is to blame, so that it
// should be run again at once.
func (c *Control) blame(k jobKey, why string, certain bool) bool {
	if k == (jobKey{}) {
		return false
	}
	now := c.o.DB.Now()
	f := c.faults[k]
	if f == nil {
		f = &fault{since: now}
		c.faults[k] = f
	}
	f.why = why
	if !certain && now.Sub(f.since) < patientFor {
		return false
	}
	f.since = now
	f.ignored, f.ends = f.ends, true
	if f.ignored {
		c.o.Log.Error("a job cannot be ended, and is left alone", "job", k.name, "err", why)
	} else {
		c.o.Log.Error("a job fails because of an internal error", "job", k.name, "err", why)
	}
	return true
}

// runCycle decides what follows from what changed, in one transaction. A panic while a job was
// worked on is its fault.
func (c *Control) runCycle(ctx context.Context, ch changes) (cy *cycle, faulty bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			if cy == nil || !c.blame(cy.at, fmt.Sprint(v), true) {
				panic(v)
			}
			faulty, err = true, berth.Errorf(berth.Internal, "%v", v)
		}
	}()
	err = c.o.DB.Update(ctx, func(tx *store.Tx) (err error) {
		if c.probe != nil {
			defer c.probe("", &err)()
		}
		if cy, err = c.newCycle(tx, ch.reload); err != nil {
			return err
		}
		return cy.run(ch)
	})
	if err != nil && cy != nil && ctx.Err() == nil && berth.CodeOf(err) != berth.Unavailable {
		faulty = c.blame(cy.at, err.Error(), false)
	}
	return cy, faulty, err
}

// endFaulty is the next step of a job with a fault: what runs is stopped, and then it has failed.
func (j *jobWork) endFaulty(why string) kind.Step {
	s := kind.Step{Status: berth.JobStatus(j.doc.Status), State: j.state}
	if s.Status.Terminal() {
		return s
	}
	s.State.Reason = "an internal error of this server ended it: " + why
	lives := false
	for _, t := range j.tasks {
		if t.State == berth.TaskDone {
			continue
		}
		lives = true
		if !t.Stop {
			s.Stop = append(s.Stop, t.ID)
		}
	}
	for node, child := range j.children {
		if child.Status.Terminal() {
			continue
		}
		lives = true
		if !child.Cancel {
			s.Cancel = append(s.Cancel, node)
		}
	}
	if !lives {
		s.Status = berth.Failed
		s.State.Exit = &berth.Exit{Code: -1, Cause: "lost", Reason: s.State.Reason}
	}
	return s
}
