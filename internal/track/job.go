package track

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
)

// A job is a run, whose id is the job's name. Nothing is written for it until somebody logs to it
// or asks for it by its id: until then the run is made of the job's document whenever runs are
// looked for, and submitting a job costs nothing here.

const kindJobs = "jobs"

// relist is after how long all jobs are read again, and not only those that something happened to:
// events are not kept for ever.
const relist = time.Hour

// A jobState is what the run of a job has of the job.
type jobState struct {
	status string // of the run
	ended  bool
	start  int64
	end    int64
}

var jobStates = map[berth.JobStatus]string{berth.Running: running, berth.Completed: finished, berth.Failed: "FAILED", berth.Canceled: "KILLED"}

// over lays the state of a job over its run: the job knows best how it ended.
func (j *jobState) over(r *run) *run {
	if !j.ended && (r.Status != "SCHEDULED" || j.status == r.Status) {
		return r
	}
	c := *r
	c.Status = j.status
	if j.ended && j.end != 0 {
		c.End = &j.end
	}
	return &c
}

// runOfJob is the run that a job's document makes, and the name of its experiment.
func runOfJob(d *store.Doc) (*run, *jobState, string, error) {
	var v struct {
		Properties struct {
			DisplayName, ExperimentName string
			Tags                        map[string]any
		}
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return nil, nil, "", berth.Errorf(berth.Internal, "job %s cannot be read: %w", d.Name, err)
	}
	st, err := job.State(d)
	if err != nil {
		return nil, nil, "", berth.Errorf(berth.Internal, "%w", err)
	}
	j := &jobState{status: jobStates[berth.JobStatus(d.Status)], ended: berth.JobStatus(d.Status).Terminal(), start: d.Created.UnixMilli()}
	if j.status == "" {
		j.status = "SCHEDULED"
	}
	if !st.Times.Started.IsZero() {
		j.start = st.Times.Started.UnixMilli()
	}
	if j.ended && !st.Times.Ended.IsZero() {
		j.end = st.Times.Ended.UnixMilli()
	}
	r := &run{
		origin: origin{d.Name, d.ID, d.CreatedBy},
		ID:     d.Name, Name: v.Properties.DisplayName, User: d.CreatedBy, Status: j.status, Stage: active, Start: d.Created.UnixMilli(),
	}
	if r.Name == "" {
		r.Name = d.Name
	}
	for k, x := range v.Properties.Tags {
		if s, ok := x.(string); ok {
			setTag(&r.Tags, pair{k, cut(s, maxTagValue)})
		}
	}
	setTag(&r.Tags, pair{tagRunName, r.Name})
	setTag(&r.Tags, pair{"mlflow.user", d.CreatedBy})
	setTag(&r.Tags, pair{"mlflow.source.type", "JOB"})
	setTag(&r.Tags, pair{"mlflow.source.name", d.Name})
	if st.Parent != "" {
		setTag(&r.Tags, pair{tagParent, st.Parent})
	}
	for k, v := range r.Tags {
		r.size += len(k) + len(v)
	}
	return r, j, experimentName(v.Properties.ExperimentName), nil
}

// experimentName is the name of the experiment that a job names.
func experimentName(name string) string {
	if strings.TrimSpace(name) == "" {
		name = "Default"
	}
	return cut(name, maxExperimentName)
}

// experimentNamed is the experiment with a name, made where it is not there.
func (c *change) experimentNamed(name string) (*experiment, error) {
	e, err := findNamed[experiment](c, kindExperiments, name)
	if err != nil || e != nil {
		return e, err
	}
	if name == "Default" {
		if e, err = c.findExperiment("0"); err != nil || e.Name == name {
			return e, err
		}
	}
	return c.newExperiment(name, "", nil)
}

// adopt makes the run of a job, nil when there is no such job.
func (c *change) adopt(name string) (*run, error) {
	d, err := c.w.jobNamed(c.tx, name)
	if err != nil || d == nil {
		return nil, err
	}
	r, _, experiment, err := runOfJob(d)
	if err != nil {
		return nil, err
	}
	e, err := c.experimentNamed(experiment)
	if err != nil {
		return nil, err
	}
	r.settle(e)
	b, err := encode(r)
	r.size = len(b) // a job's tags may be more than a run's
	return r, err
}

// jobRunOf is the run of a job that has none yet, written; nil when there is no such job.
func (w *workspace) jobRunOf(ctx context.Context, id string) (*run, error) {
	isJob := false
	err := w.s.DB.View(ctx, func(tx *store.Tx) error {
		d, err := w.jobNamed(tx, id)
		isJob = d != nil
		return err
	})
	if err != nil || !isJob {
		return nil, err
	}
	err = w.update(ctx, func(x *change) error {
		r, err := x.findRun(id)
		if err != nil || r.doc != nil {
			return err
		}
		return x.save(r)
	})
	return w.run(id), err
}

// KeepRun writes the run of a job that is being deleted, if it is not written yet: files of the job
// stay, because registered versions consist of them, and would be those of the next job that gets
// its name.
func KeepRun(tx *store.Tx, d *store.Doc) error {
	_, err := tx.Get(d.Workspace, kindRuns, d.Name, "")
	if berth.CodeOf(err) != berth.NotFound {
		return err
	}
	r, j, name, err := runOfJob(d)
	if err != nil {
		return err
	}
	c := &change{w: &workspace{Workspace: Workspace{Key: d.Workspace}}, tx: tx, state: true}
	e, err := findNamed[experiment](c, kindExperiments, name)
	if err == nil && e == nil { // nobody has asked for it, and nobody knows its ID
		e, err = c.findExperiment("0")
	}
	if err != nil {
		return err
	}
	r = j.over(r)
	r.settle(e)
	return c.save(r)
}

// modelNames are the names of all registered models.
func (w *workspace) modelNames() []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.Collect(maps.Keys(w.index.models))
}

// catchUp brings the runs of jobs and the registered versions of models up to date, as far as
// something happened to them since it was called last.
func (w *workspace) catchUp(ctx context.Context) error {
	w.jobs.mu.Lock()
	defer w.jobs.mu.Unlock()
	if w.s.DB.Rev() == w.jobs.rev {
		return nil
	}
	defer w.index.removed.begin()()
	var docs, models []*store.Doc
	var gone, changed []string
	var kept []*run
	var rev berth.Rev
	now := time.Now()
	all := w.jobs.rev == 0 || now.Sub(w.jobs.at) > relist
	err := w.s.DB.View(ctx, func(tx *store.Tx) (err error) {
		if rev, err = tx.Rev(); err != nil {
			return err
		}
		if all {
			if docs, err = tx.All(store.Query{Workspace: w.Key, Kind: kindJobs, Asc: true}); err != nil {
				return err
			}
			models, err = tx.All(store.Query{Workspace: w.Key, Kind: kindModelVersions, Asc: true})
			if err != nil {
				return err
			}
			changed, gone = w.modelNames(), w.jobsBut(docs)
			kept, err = w.keptOf(tx, gone)
			return err
		}
		jobs, names, err := touched(tx, w.Key, w.jobs.rev)
		if err != nil {
			return err
		}
		for name := range names {
			of, err := tx.All(store.Query{Workspace: w.Key, Kind: kindModelVersions, Name: name, Asc: true})
			if err != nil {
				return err
			}
			models, changed = append(models, of...), append(changed, name)
		}
		for name := range jobs {
			d, err := tx.Get(w.Key, kindJobs, name, "")
			switch {
			case berth.CodeOf(err) == berth.NotFound:
				gone = append(gone, name)
			case err != nil:
				return err
			default:
				docs = append(docs, d)
			}
		}
		kept, err = w.keptOf(tx, gone)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.showJobs(ctx, docs, gone); err != nil {
		return err
	}
	w.showKept(kept)
	if err := w.showModels(ctx, changed, models); err != nil {
		return err
	}
	w.jobs.rev, w.jobs.at = rev, now
	return nil
}

// jobsBut are the jobs that are shown and are not among those that there are.
func (w *workspace) jobsBut(docs []*store.Doc) (gone []string) {
	there := make(map[string]bool, len(docs))
	for _, d := range docs {
		there[d.Name] = true
	}
	w.view(func(x *index) {
		for name := range x.jobs {
			if !there[name] {
				gone = append(gone, name)
			}
		}
	})
	return gone
}

// keptOf are the runs of deleted jobs that are written.
func (w *workspace) keptOf(tx *store.Tx, gone []string) (kept []*run, err error) {
	for _, name := range gone {
		r, err := find[run](&change{w: w, tx: tx}, kindRuns, name, "")
		if err != nil {
			return nil, err
		}
		if r != nil && r.ID == name {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// showKept brings the runs of deleted jobs into the index: they may have been written with the
// deletion.
func (w *workspace) showKept(kept []*run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range kept {
		w.index.put(r)
	}
}

// touched is the jobs and the models that something happened to.
func touched(tx *store.Tx, workspace string, from berth.Rev) (jobs, models map[string]bool, err error) {
	const most = 1000
	jobs, models = map[string]bool{}, map[string]bool{}
	for {
		events, err := tx.Events(store.EventQuery{Workspace: workspace, From: from, Limit: most})
		if err != nil {
			return nil, nil, err
		}
		for _, e := range events {
			switch kind, name, _ := strings.Cut(e.Subject, "/"); kind {
			case kindJobs:
				jobs[name] = true
			case kindModels:
				name, _, _ = strings.Cut(name, "/")
				models[name] = true
			}
			from = e.Rev
		}
		if len(events) < most {
			return jobs, models, nil
		}
	}
}

// showJobs brings jobs into the index.
func (w *workspace) showJobs(ctx context.Context, docs []*store.Doc, gone []string) error {
	type shown struct {
		r    *run
		j    *jobState
		name string
	}
	var list []shown
	var lacking []string
	for _, d := range docs { // there may be many, and to read them takes longer than the rest
		r, j, name, err := runOfJob(d)
		if err != nil {
			w.s.Log.Error("job not shown as a run", "err", err)
			continue
		}
		list = append(list, shown{r, j, name})
	}
	w.view(func(x *index) {
		for _, s := range list {
			if x.named[s.name] == nil {
				lacking = append(lacking, s.name)
			}
		}
	})
	if len(lacking) > 0 {
		err := w.update(ctx, func(x *change) error {
			made := map[string]bool{}
			for _, name := range lacking {
				if made[name] {
					continue
				}
				made[name] = true
				if _, err := x.experimentNamed(name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	defer w.measure()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range list {
		w.index.jobs[s.r.ID] = s.j
		r := w.index.run(s.r.ID)
		if r == nil || r.doc == nil {
			e := w.index.named[s.name]
			if e == nil {
				continue
			}
			r = s.r
			r.settle(e)
		}
		w.index.put(r)
	}
	for _, id := range gone {
		delete(w.index.jobs, id)
		if n := w.index.runs[id]; n != nil && n.r.doc == nil {
			w.index.removeRun(n)
		}
	}
	return nil
}
