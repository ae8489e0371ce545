package cost

import (
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Tasks is the meters of the tasks of some jobs, those that run up to now. What ran on the machine
// itself has none where that costs nothing. Tasks whose meters were rolled up come first, as one
// meter for each job and day.
func Tasks(tx *store.Tx, workspace string, local berth.LocalTerms, tasks []*berth.Task, now time.Time) ([]berth.Meter, error) {
	r := &reader{tx: tx, workspace: workspace, local: local}
	machine, priced := local.Meter()
	_, s, err := loadRolled(tx, workspace)
	if err != nil {
		return nil, err
	}
	old := map[string]Window{} // jobs of which something was rolled up, and when they ran
	var out []berth.Meter
	for _, t := range tasks {
		here := berth.IsLocal(t.Compute)
		if t.Times.Placed.IsZero() || t.Node == "" && !here {
			continue
		}
		d, err := tx.Get(workspace, kindMeter, string(t.ID), "")
		if err != nil && berth.CodeOf(err) != berth.NotFound {
			return nil, err
		}
		if err == nil {
			m, err := r.meter(d)
			if err != nil {
				return nil, err
			}
			if m.From.After(t.Times.Placed) {
				old[t.Job] = old[t.Job].with(t.Times.Placed, m.From)
			}
			out = append(out, m)
			continue
		}
		if t.State == berth.TaskDone && t.Times.Placed.Before(s.Last.Add(day)) {
			old[t.Job] = old[t.Job].with(t.Times.Placed, t.Times.Ended)
			continue
		}
		if here {
			if priced && t.State != berth.TaskDone {
				out = append(out, on(machine, t, now))
			}
			continue
		}
		if d, err = tx.Get(workspace, kindNode, t.Node, ""); berth.CodeOf(err) == berth.NotFound {
			continue
		} else if err != nil {
			return nil, err
		}
		n, err := r.node(d, now)
		if err != nil {
			return nil, err
		}
		out = append(out, on(n, t, now))
	}
	rolled, err := r.rolledJobs(old)
	return append(rolled, out...), err
}

// with is the window that has another one in it too.
func (w Window) with(since, until time.Time) Window {
	if w.Since.IsZero() || since.Before(w.Since) {
		w.Since = since
	}
	if until.After(w.Until) {
		w.Until = until
	}
	return w
}

// rolledJobs is what was rolled up of some jobs, each of which ran within a window.
func (r *reader) rolledJobs(jobs map[string]Window) (out []berth.Meter, err error) {
	for job, w := range jobs {
		w.Since, w.Until = dayOf(w.Since), dayOf(w.Until).Add(day)
		err := r.days(w, func(p part) {
			if p.Job != job || p.hours <= 0 {
				return
			}
			m := p.Meter
			m.To, m.Rate = m.From.Add(time.Duration(p.hours*float64(time.Hour))), p.cost/p.hours
			out = append(out, m)
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
