package api

import (
	"net/http"
	"slices"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
)

// cancelAtOnce is how many jobs one transaction asks to end: others wait for the writer meanwhile.
const cancelAtOnce = 5000

// cancelJobs asks many jobs to end: POST cancelJobs.
func (s *jobService) cancelJobs(c *call) error {
	var q berth.CancelJobs
	if err := c.into(&q); err != nil {
		return err
	}
	var out berth.CanceledJobs
	var err error
	switch {
	case len(q.Names) > 0 && (q.All || q.Experiment != "" || q.Everyone):
		err = berth.Errorf(berth.Invalid, "names cannot be given together with all, experimentName or everyone")
	case q.All || q.Experiment != "":
		err = s.cancelFitting(c, q, &out)
	case len(q.Names) == 0:
		err = berth.Errorf(berth.Invalid, "it does not say which jobs; give names, experimentName or all")
	default:
		for names := range slices.Chunk(q.Names, cancelAtOnce) {
			if err = s.cancelNamed(c, names, &out); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, out)
}

// cancelNamed asks the jobs of these names to end, in one transaction.
func (s *jobService) cancelNamed(c *call, names []string, out *berth.CanceledJobs) error {
	var part berth.CanceledJobs
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		part = berth.CanceledJobs{}
		for _, name := range names {
			d, err := tx.Get(c.ws.Key(), "jobs", name, "")
			switch {
			case berth.CodeOf(err) == berth.NotFound:
				part.Missing = append(part.Missing, name)
				continue
			case err != nil:
				return err
			case berth.JobStatus(d.Status).Terminal():
				part.Ended = append(part.Ended, name)
				continue
			}
			if err := c.madeIt(s.docs.row("jobs"), d, "cancel"); err != nil {
				return err
			}
			if err := job.Cancel(tx, d, job.Stop{Event: "cancel requested by " + c.who.User}); err != nil {
				return err
			}
			part.Asked++
		}
		return nil
	})
	out.Asked += part.Asked
	out.Ended, out.Missing = append(out.Ended, part.Ended...), append(out.Missing, part.Missing...)
	return err
}

// cancelFitting asks every job that has not ended and fits to end, many in a transaction. Steps end
// with their pipelines.
func (s *jobService) cancelFitting(c *call, q berth.CancelJobs, out *berth.CanceledJobs) error {
	list := store.Query{
		Workspace: c.ws.Key(), Kind: "jobs", Status: berth.StatusTexts(berth.ActiveStatuses), Parent: q.Experiment,
		Asc: true, Limit: cancelAtOnce,
	}
	if !q.Everyone {
		list.CreatedBy = c.who.User
	} else if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may cancel the jobs of everyone: leave that out to cancel your own")
	}
	for {
		asked, last, full := 0, int64(0), false
		err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
			docs, err := tx.List(list)
			if err != nil {
				return err
			}
			asked, full = 0, len(docs) == list.Limit
			for _, d := range docs {
				last = d.ID
				if isStep(d) {
					continue
				}
				if err := job.Cancel(tx, d, job.Stop{Event: "cancel requested by " + c.who.User}); err != nil {
					return err
				}
				asked++
			}
			return nil
		})
		if err != nil {
			return err
		}
		out.Asked, list.After = out.Asked+asked, last
		if !full {
			return nil
		}
	}
}
