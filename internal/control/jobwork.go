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

// jobWork is a job within a move.
type jobWork struct {
	doc *store.Doc
	said
	fault string // why it ends although it should not, see fault
	tasks []*berth.Task
	dirty map[berth.TaskID]bool // tasks to save
	fresh map[berth.TaskID]bool // tasks to insert

	// Of a pipeline:
	children map[string]kind.Child
}

func (j *jobWork) key() jobKey { return jobKey{j.doc.Workspace, j.doc.Name} }

// job reads a job and its tasks once per move; nil when it is gone.
func (m *move) job(k jobKey) (*jobWork, error) {
	if j, ok := m.jobs[k]; ok {
		return j, nil
	}
	f := m.c.faults[k]
	if f != nil && f.ignored {
		return nil, nil
	}
	d, err := m.tx.Get(k.workspace, "jobs", k.name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &jobWork{doc: d, dirty: map[berth.TaskID]bool{}, fresh: map[berth.TaskID]bool{}}
	if f != nil && f.ends {
		j.fault = f.why
	}
	j.said = m.c.said.of(k, d, m.c.o.KindOf)
	if d.Status != string(berth.NotStarted) && !j.pipeline {
		if j.tasks, err = m.tx.TasksOf(k.workspace, k.name); err != nil {
			return nil, err
		}
	}
	m.jobs[k] = j
	return j, nil
}

// next is what the job does next. One whose document says nothing that can be done ends: it must not hold up the others.
func (j *jobWork) next() (kind.Step, error) {
	if j.fault != "" {
		return j.endFaulty(j.fault), nil
	}
	k, err := j.kind, j.unclear
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
	return k.Step(kind.Job{Name: j.doc.Name, Key: berth.NewTaskKey(j.doc.Name, j.doc.ID), Status: berth.JobStatus(j.doc.Status), State: j.state, Props: j.props, Children: j.children}, j.tasks), nil
}

// step creates and stops tasks as the job's kind says, and notes which pools have something to decide.
func (m *move) step(j *jobWork) error {
	if j.pipeline {
		return nil // see pipelines
	}
	s, err := j.next()
	if err != nil {
		return err
	}
	for _, t := range j.tasks {
		if t.State != berth.TaskDone {
			continue
		}
		p := m.c.placed[t.ID]
		switch {
		case p != nil && !slices.Contains(m.ended, p):
			m.ended = append(m.ended, p)
		case p == nil && m.anew && !t.Times.Placed.IsZero():
			m.c.pool(t).take(t) // an earlier process took note of its end, and perhaps of no more
		default:
			continue
		}
		if err := m.release(t); err != nil {
			return err
		}
	}
	for i := range s.Start {
		t := s.Start[i]
		t.Workspace, t.Job, t.User, t.Created = j.doc.Workspace, j.doc.Name, j.doc.CreatedBy, m.now
		t.State = berth.TaskWaiting
		t.Times.Submitted = j.state.Times.Submitted
		p := m.c.pool(&t)
		if !p.single() {
			t.Spot = t.Spot || p.spec.low
			t.Limit = j.limit()
		}
		j.tasks = append(j.tasks, &t)
		j.fresh[t.ID] = true
		m.c.enqueue(p, &t)
		m.pools[p.key] = true
		if t.Rank == 0 {
			m.fresh[p.key] = append(m.fresh[p.key], t.Gang())
		}
	}
	for _, id := range s.Stop {
		if t := j.task(id); t != nil {
			t.Stop = true
			j.dirty[id] = true
			if t.State == berth.TaskWaiting {
				m.pools[keyOf(t.Workspace, t.Compute)] = true
				m.c.dequeue(t.Gang())
				m.endTask(t, &berth.Exit{Code: -1, Cause: "canceled", Reason: "canceled while it was waiting"})
			} else {
				m.stop = append(m.stop, stopping{task: id})
			}
		}
	}
	return nil
}

// limit is how long a task of the job can run at most once its command has begun, 0 when nobody knows.
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

func (j *jobWork) task(id berth.TaskID) *berth.Task {
	for _, t := range j.tasks {
		if t.ID == id {
			return t
		}
	}
	return nil
}

func (m *move) endTask(t *berth.Task, e *berth.Exit) {
	t.State, t.Exit, t.Why = berth.TaskDone, e, e.Reason
	t.Times.Ended = m.now
}

// save writes a job's tasks, and the job itself when its status or state has changed.
func (m *move) save(j *jobWork) error {
	for _, t := range j.tasks {
		var err error
		switch {
		case j.fresh[t.ID]:
			err = m.tx.InsertTask(t)
		case j.dirty[t.ID]:
			err = m.tx.SaveTask(t)
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
		m.tx.Emit(berth.Event{
			Workspace: j.doc.Workspace, Subject: "jobs/" + j.doc.Name, Type: berth.EventJobStatus, Reason: s.State.Reason, Data: data,
		})
	}
	if s.Status.Terminal() && !berth.JobStatus(j.doc.Status).Terminal() {
		if err := cost.Release(m.tx, j.doc.Workspace, j.doc.CreatedBy, s.State); err != nil {
			return err
		}
	}
	if s.Status == berth.Completed && j.doc.Status != string(s.Status) {
		if err := m.register(j); err != nil {
			return err
		}
	}
	if string(s.Status) != j.doc.Status && j.state.Parent != "" {
		m.above = append(m.above, jobKey{j.doc.Workspace, j.state.Parent})
	}
	if j.pipeline {
		m.tellSteps(j, s)
	}
	j.doc.Status, j.doc.Own = string(s.Status), own
	m.c.said.note(j, s)
	if s.Status.Terminal() && len(j.tasks) > 0 && j.tasks[0].Spot && m.c.o.Keep != "" {
		m.over = append(m.over, filepath.Join(m.c.o.Keep, keepName(j.tasks[0])))
	}
	return m.tx.Save(j.doc)
}
