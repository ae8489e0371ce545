package control

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/store"
)

// jobWork is a job during a cycle.
type jobWork struct {
	doc *store.Doc
	jobView
	fault   string // why it ends although it should not, see fault
	tasks   []*berth.Task
	updates map[berth.TaskID]bool // tasks to save
	inserts map[berth.TaskID]bool // tasks to insert

	// Of a pipeline:
	children map[string]kind.Child

	work *berth.Work // of a job with mini-batches
}

func (j *jobWork) key() jobKey { return jobKey{j.doc.Workspace, j.doc.Name} }

// job reads a job and its tasks once per cycle; nil when it is gone.
func (cy *cycle) job(k jobKey) (*jobWork, error) {
	if j, ok := cy.jobs[k]; ok {
		return j, nil
	}
	f := cy.c.faults[k]
	if f != nil && f.ignored {
		return nil, nil
	}
	d, err := cy.tx.Get(k.workspace, "jobs", k.name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &jobWork{doc: d, updates: map[berth.TaskID]bool{}, inserts: map[berth.TaskID]bool{}}
	if f != nil && f.ends {
		j.fault = f.why
	}
	j.jobView = cy.c.jobCache.decode(k, d, cy.c.o.KindOf)
	if d.Status != string(berth.NotStarted) && !j.pipeline {
		if j.tasks, err = cy.tx.TasksOf(k.workspace, k.name); err != nil {
			return nil, err
		}
	}
	if err := cy.settle(j); err != nil {
		return nil, err
	}
	cy.jobs[k] = j
	return j, nil
}

// next is what the job does next. One whose document says nothing that can be done ends: it must
// not hold up the others.
func (j *jobWork) next() (kind.Step, error) {
	if j.fault != "" {
		return j.endFaulty(j.fault), nil
	}
	k, err := j.kind, j.kindErr
	if err != nil && len(j.tasks) == 0 {
		s := kind.Step{Status: berth.JobStatus(j.doc.Status), State: j.state}
		if !s.Status.Terminal() {
			s.Status, s.State.Reason = berth.Failed, "the job's document cannot be read: "+err.Error()
		}
		return s, nil
	}
	if err != nil { // it was read once: what runs is looked after to its end
		if k, err = kind.Of("Command"); err != nil {
			return kind.Step{}, err
		}
	}
	return k.Step(kind.Job{Name: j.doc.Name, Key: berth.NewTaskKey(j.doc.Name, j.doc.ID), Status: berth.JobStatus(j.doc.Status), State: j.state, Props: j.props, Children: j.children, Work: j.work}, j.tasks), nil
}

// step creates and stops tasks as the job's kind says, and notes which pools have something to
// decide.
func (cy *cycle) step(j *jobWork) error {
	if j.pipeline {
		return nil // stepParents steps it
	}
	s, err := j.next()
	if err != nil {
		return err
	}
	for _, t := range j.tasks {
		if t.State != berth.TaskDone {
			continue
		}
		p := cy.state.placed[t.ID]
		switch {
		case p != nil && !slices.Contains(cy.plan.ended, p):
			cy.plan.ended = append(cy.plan.ended, p)
		case p == nil && cy.reloaded && !t.Times.Placed.IsZero():
			// an earlier process took note of its end, and perhaps of no more
			cy.state.poolOf(t).occupy(t)
		default:
			continue
		}
		if err := cy.releaseTask(t); err != nil {
			return err
		}
	}
	for i := range s.Start {
		t := s.Start[i]
		t.GPUs = j.gpus()
		t.Workspace, t.Job, t.User, t.Created = j.doc.Workspace, j.doc.Name, j.doc.CreatedBy, cy.now
		t.State = berth.TaskWaiting
		t.Times.Submitted = j.state.Times.Submitted
		p := cy.state.poolOf(&t)
		if !p.single() {
			t.Spot = t.Spot || p.spec.Low()
			t.Limit = j.limit()
		}
		j.tasks = append(j.tasks, &t)
		j.inserts[t.ID] = true
		cy.state.enqueue(p, &t)
		cy.pools[p.key] = true
		if t.Rank == 0 {
			cy.newGangs[p.key] = append(cy.newGangs[p.key], t.Gang())
		}
	}
	for _, id := range s.Stop {
		if t := j.task(id); t != nil {
			t.Stop = true
			j.updates[id] = true
			if t.State == berth.TaskWaiting {
				cy.pools[keyOf(t.Workspace, t.Compute)] = true
				cy.state.dequeue(t.Gang())
				cy.endTask(t, &berth.Exit{Code: -1, Cause: "canceled", Reason: "canceled while it was waiting"})
			} else {
				cy.plan.stops = append(cy.plan.stops, taskStop{task: id})
			}
		}
	}
	return nil
}

// limit is how long a task of the job can run at most once its command has begun, 0 when nobody
// knows.
func (j *jobWork) limit() time.Duration {
	var v struct {
		Limits struct {
			Timeout string `json:"timeout"`
		} `json:"limits"`
	}
	if json.Unmarshal(j.props, &v) != nil {
		return 0
	}
	d, err := berth.ParseDuration(v.Limits.Timeout)
	if err != nil || d <= 0 {
		return 0
	}
	return d + grace
}

// gpus is what a task of the job asks for. What cannot be read ends the job when it is launched.
func (j *jobWork) gpus() int {
	needs, err := berth.NeedsOf(j.props)
	if err != nil {
		return 0
	}
	return needs.TaskGPUs()
}

func (j *jobWork) task(id berth.TaskID) *berth.Task {
	for _, t := range j.tasks {
		if t.ID == id {
			return t
		}
	}
	return nil
}

func (cy *cycle) endTask(t *berth.Task, e *berth.Exit) {
	t.State, t.Exit, t.Why = berth.TaskDone, e, e.Reason
	t.Times.Ended = cy.now
}

// save writes a job's tasks, and the job itself when its status or state has changed.
func (cy *cycle) save(j *jobWork) error {
	for _, t := range j.tasks {
		var err error
		switch {
		case j.inserts[t.ID]:
			err = cy.tx.InsertTask(t)
		case j.updates[t.ID]:
			err = cy.tx.SaveTask(t)
		}
		if err != nil {
			return err
		}
	}
	s, err := j.next()
	if err != nil {
		return err
	}
	own, err := json.Marshal(s.State)
	if err != nil {
		return err
	}
	if string(s.Status) == j.doc.Status && bytes.Equal(own, j.doc.Own) {
		return nil
	}
	if string(s.Status) != j.doc.Status {
		data, err := json.Marshal(struct {
			Exit   *berth.Exit     `json:"exit"`
			Status berth.JobStatus `json:"status"`
		}{s.State.Exit, s.Status})
		if err != nil {
			return err
		}
		cy.tx.Emit(berth.Event{
			Workspace: j.doc.Workspace, Subject: "jobs/" + j.doc.Name, Type: berth.EventJobStatus, Reason: s.State.Reason, Data: data,
		})
	}
	if s.Status.Terminal() && !berth.JobStatus(j.doc.Status).Terminal() {
		if err := cost.Release(cy.tx, j.doc.Workspace, j.doc.CreatedBy, s.State); err != nil {
			return err
		}
	}
	if s.Status == berth.Completed && j.doc.Status != string(s.Status) {
		if err := cy.completed(j); err != nil {
			return err
		}
	}
	if string(s.Status) != j.doc.Status && j.state.Parent != "" {
		cy.parents = append(cy.parents, jobKey{j.doc.Workspace, j.state.Parent})
	}
	if j.pipeline {
		cy.emitStepEvents(j, s)
	}
	j.doc.Status, j.doc.Own = string(s.Status), own
	j.own, j.state = own, s.State
	if s.Status.Terminal() && len(j.tasks) > 0 && j.tasks[0].Spot && cy.c.o.Keep != "" {
		cy.plan.discards = append(cy.plan.discards, filepath.Join(cy.c.o.Keep, keepName(j.tasks[0])))
	}
	return cy.tx.Save(j.doc)
}
