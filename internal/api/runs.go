package api

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/plan"
	"github.com/berthml/berth/internal/store"
)

// What earlier runs tell of those that run and wait: how long they take and what they cost.

// expected is for how many jobs it is worked out how long they take.
const expected = 200

// expect says how long what runs and waits takes, where a limit or a history tells.
func (x *snapshot) expect(p *plan.Pool) error {
	tasks, err := x.Tasks()
	if err != nil {
		return err
	}
	n := 0
	for _, t := range tasks {
		if t.Rank != 0 || !p.Has(t, x.Workspace) {
			continue
		}
		if n++; n > expected {
			return nil
		}
		if t.Limit > 0 {
			p.Expect[t.Gang()] = plan.Expect{From: t.Times.Started, Took: t.Limit, Limit: true}
			continue
		}
		d, err := x.Tx.Get(t.Workspace, "jobs", t.Job, "")
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		v, err := jobOf(d)
		if err != nil {
			continue
		}
		if limit, err := berth.ParseDuration(v.Limits.Timeout); err == nil && limit > 0 {
			p.Expect[t.Gang()] = plan.Expect{From: t.Times.Started, Took: limit, Limit: true}
			continue
		}
		if t.Workspace != x.Workspace {
			continue // others' history is not ours
		}
		h, known, err := x.history(v, d.Name)
		if err != nil {
			return err
		}
		if known {
			p.Expect[t.Gang()] = plan.Expect{From: t.Times.Started, Took: h.Median}
		}
	}
	return nil
}

// jobOf is the typed view of a job's document.
func jobOf(d *store.Doc) (v berth.CommandJob, err error) {
	var body struct {
		Properties *berth.CommandJob `json:"properties"`
	}
	body.Properties = &v
	err = json.Unmarshal(d.Body, &body)
	return v, err
}

// remembered is how many runs of an experiment are looked at, the newest.
const remembered = 100

// history is how long runs like a job took.
func (x *snapshot) history(v berth.CommandJob, name string) (cost.History, bool, error) {
	runs, ok := x.runs[v.ExperimentName]
	if !ok {
		docs, err := x.completed(v.ExperimentName)
		if err != nil {
			return cost.History{}, false, err
		}
		for _, d := range docs {
			r, ok := runOf(d)
			if !ok {
				continue
			}
			if x.priced {
				if err := x.price(&r); err != nil {
					return cost.History{}, false, err
				}
			}
			runs = append(runs, r)
		}
		x.runs[v.ExperimentName] = runs
	}
	h, known := cost.HistoryOf(run(v, name), runs)
	return h, known, nil
}

// among is how many jobs are looked at for those that completed. Of an experiment thousands may
// wait, and thousands of others may have completed since; a submit must not read them all.
const among = 500

// completed is the last jobs of an experiment that completed, those among its last jobs, or else
// among the last that completed at all.
func (x *snapshot) completed(experiment string) (docs []*store.Doc, err error) {
	done := []string{string(berth.Completed)}
	for _, q := range []store.Query{{Parent: experiment}, {Status: done}} {
		q.Workspace, q.Kind, q.Limit, q.NoBody = x.Workspace, "jobs", among, true
		last, err := x.Tx.List(q)
		if err != nil {
			return nil, err
		}
		for _, d := range last {
			if d.Parent != experiment || d.Status != done[0] || len(docs) >= remembered {
				continue
			}
			if d, err = x.Tx.Get(x.Workspace, "jobs", d.Name, ""); err != nil {
				return nil, err
			}
			docs = append(docs, d)
		}
		if len(docs) > 0 {
			break
		}
	}
	return docs, nil
}

func run(v berth.CommandJob, name string) cost.Run {
	r := cost.Run{Name: name, Experiment: v.ExperimentName, Command: v.Command, Display: v.DisplayName}
	if strings.EqualFold(r.Display, name) {
		r.Display = "" // it was given none
	}
	return r
}

// runOf is what a job that has ended tells of the next one like it.
func runOf(d *store.Doc) (cost.Run, bool) {
	v, err := jobOf(d)
	if err != nil {
		return cost.Run{}, false
	}
	st, err := job.State(d)
	if err != nil || st.Times.Placed.IsZero() || st.Times.Ended.IsZero() {
		return cost.Run{}, false
	}
	r := run(v, d.Name)
	r.Took = st.Times.Ended.Sub(st.Times.Placed)
	return r, r.Took > 0
}

// price fills in what a run cost, if that is known.
func (x *snapshot) price(r *cost.Run) error {
	lines, err := x.jobCost(r.Name)
	if len(lines) == 1 && lines[0].Unknown == 0 {
		r.Cost, r.Priced = lines[0].Cost, true
	}
	return err
}

// jobCost is what jobs have cost so far, one line for each currency.
func (x *snapshot) jobCost(jobs ...string) ([]berth.CostLine, error) {
	var tasks []*berth.Task
	for _, name := range jobs {
		more, err := x.Tx.TasksOf(x.Workspace, name)
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, more...)
	}
	meters, err := cost.Tasks(x.Tx, x.Workspace, x.s.Local, tasks, x.Now)
	if err != nil {
		return nil, err
	}
	return cost.Tally(meters, nil, cost.Window{Until: x.Now.Add(time.Hour)}).Totals, nil
}
