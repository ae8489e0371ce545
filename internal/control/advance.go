package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
)

// move is one pass over some jobs: what a transaction decided, to be acted on once it is durable.
type move struct {
	c   *Control
	tx  *store.Tx
	now time.Time

	jobs    map[jobKey]*jobWork
	places  map[string]place         // workspaces that were read
	waiting map[string][]*berth.Task // copies of the loop's lists, as they will be
	used    map[string]int
	start   []started
	stop    []berth.TaskID
	ended   []berth.TaskID
}

type started struct {
	task   berth.Task
	launch berth.Launch
}

// jobWork is a job within a move.
type jobWork struct {
	doc   *store.Doc
	state berth.JobState
	props json.RawMessage
	tasks []*berth.Task
	dirty map[berth.TaskID]bool // tasks to save
	fresh map[berth.TaskID]bool // tasks to insert
}

// advance makes the next step of each touched job and places what can be placed, on the computes where something changed and on
// those named, in one transaction, then acts.
func (c *Control) advance(ctx context.Context, touched map[jobKey]bool, computes ...string) {
	var m *move
	backoff := 50 * time.Millisecond
	for {
		err := c.o.DB.Update(ctx, func(tx *store.Tx) error {
			m = &move{
				c: c, tx: tx, now: time.Now(), jobs: map[jobKey]*jobWork{},
				waiting: map[string][]*berth.Task{}, used: maps.Clone(c.used),
			}
			return m.run(touched, computes)
		})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		c.o.Log.Error("jobs could not be advanced; trying again", "jobs", len(touched), "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
			backoff = min(2*backoff, 5*time.Second)
		}
	}
	for compute, list := range m.waiting {
		c.waiting[compute] = list
	}
	c.used = m.used
	for _, id := range m.ended {
		if p := c.placed[id]; p != nil {
			c.ended(p.task.Compute, m.now)
			delete(c.placed, id)
			c.remove(ctx, p)
		}
	}
	for _, s := range m.start {
		c.startTask(ctx, s)
	}
	for _, id := range m.stop {
		if p := c.placed[id]; p != nil {
			c.stopTask(ctx, p)
		}
	}
}

func (m *move) run(touched map[jobKey]bool, also []string) error {
	var jobs []*jobWork
	for k := range touched {
		j, err := m.job(k)
		if err != nil {
			return err
		}
		if j != nil {
			jobs = append(jobs, j)
		}
	}
	// In the order they were submitted, which is the order they should run in.
	slices.SortFunc(jobs, func(a, b *jobWork) int { return cmp.Compare(a.doc.ID, b.doc.ID) })
	computes := map[string]bool{}
	for _, name := range also {
		computes[name] = true
	}
	for _, j := range jobs {
		if err := m.step(j, computes); err != nil {
			return err
		}
	}
	for compute := range computes {
		for again := true; again; {
			var err error
			if again, err = m.plan(compute); err != nil {
				return err
			}
		}
	}
	for _, j := range m.jobs {
		if err := m.save(j); err != nil {
			return err
		}
	}
	return nil
}

// job reads a job and its tasks once per move; nil when it is gone.
func (m *move) job(k jobKey) (*jobWork, error) {
	if j, ok := m.jobs[k]; ok {
		return j, nil
	}
	d, err := m.tx.Get(k.workspace, "jobs", k.name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &jobWork{doc: d, dirty: map[berth.TaskID]bool{}, fresh: map[berth.TaskID]bool{}}
	if err := json.Unmarshal(d.Own, &j.state); err != nil {
		return nil, err
	}
	var body struct {
		Properties json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &body); err != nil {
		return nil, err
	}
	j.props = body.Properties
	if d.Status != string(berth.NotStarted) {
		if j.tasks, err = m.tx.TasksOf(k.workspace, k.name); err != nil {
			return nil, err
		}
	}
	m.jobs[k] = j
	return j, nil
}

func (j *jobWork) next() (kind.Step, error) {
	var v struct {
		JobType string `json:"jobType"`
	}
	if err := json.Unmarshal(j.props, &v); err != nil {
		return kind.Step{}, err
	}
	k, err := kind.Of(v.JobType)
	if err != nil {
		return kind.Step{}, err
	}
	return k.Step(kind.Job{Name: j.doc.Name, Key: taskKey(j.doc), Status: berth.JobStatus(j.doc.Status), State: j.state, Props: j.props}, j.tasks), nil
}

// taskKey begins the ids of a job's tasks: its name, for people, and its place in the store, which no other job has, in this
// workspace or another, now or later. Ids become file names, so a long name is cut.
func taskKey(d *store.Doc) string {
	name := d.Name
	if len(name) > 150 {
		name = name[:150]
	}
	return name + "." + strconv.FormatInt(d.ID, 36)
}

// step creates and stops tasks as the job's kind says, and notes which computes have something to decide.
func (m *move) step(j *jobWork, computes map[string]bool) error {
	s, err := j.next()
	if err != nil {
		return err
	}
	for i := range s.Start {
		t := s.Start[i]
		t.Workspace, t.Job, t.User, t.Created = j.doc.Workspace, j.doc.Name, j.doc.CreatedBy, m.now
		t.State = berth.TaskWaiting
		t.Times.Submitted = j.state.Times.Submitted
		j.tasks = append(j.tasks, &t)
		j.fresh[t.ID] = true
		m.queue(t.Compute)
		m.waiting[t.Compute] = append(m.waiting[t.Compute], &t)
		computes[t.Compute] = true
	}
	for _, id := range s.Stop {
		for _, t := range j.tasks {
			if t.ID != id {
				continue
			}
			t.Stop = true
			j.dirty[id] = true
			if t.State == berth.TaskWaiting {
				m.unqueue(t)
				m.endTask(t, &berth.Exit{Code: -1, Cause: "canceled", Reason: "canceled while it was waiting"})
			} else {
				m.stop = append(m.stop, id)
			}
		}
	}
	for _, t := range j.tasks {
		if t.State == berth.TaskDone && m.c.placed[t.ID] != nil && !slices.Contains(m.ended, t.ID) {
			m.ended = append(m.ended, t.ID)
			m.used[t.Compute]--
			computes[t.Compute] = true
		}
	}
	return nil
}

// queue makes the move's own copy of a compute's list.
func (m *move) queue(compute string) {
	if _, ok := m.waiting[compute]; !ok {
		m.waiting[compute] = slices.Clone(m.c.waiting[compute])
	}
}

func (m *move) unqueue(t *berth.Task) {
	m.queue(t.Compute)
	m.waiting[t.Compute] = slices.DeleteFunc(m.waiting[t.Compute], func(w *berth.Task) bool { return w.ID == t.ID })
}

func (m *move) endTask(t *berth.Task, e *berth.Exit) {
	t.State, t.Exit, t.Why = berth.TaskDone, e, e.Reason
	t.Times.Ended = m.now
}

// plan asks the scheduler about the head of a compute's queue, as many as could be placed, and about the tasks at its end that
// are new and have no reason yet. What lies between is not looked at: thousands may wait. It says whether to ask again: a task
// that could not be launched has left its slot to the next.
func (m *move) plan(compute string) (again bool, err error) {
	m.queue(compute)
	list := m.waiting[compute]
	target, known := m.c.o.Targets[compute]
	st := sched.Target{Name: compute, Slots: target.Slots, Used: m.used[compute]}
	if target.Queues {
		st.Ahead = m.c.pace[compute].ahead(m.now)
	}
	if !known {
		st.Down = "this server has no driver for it"
	}
	head := min(max(st.Slots+st.Ahead-st.Used, 0), len(list))
	tail := len(list)
	for tail > head && list[tail-1].Why == "" {
		tail--
	}
	ask := append(slices.Clone(list[:head]), list[tail:]...)
	ids := make([]berth.TaskID, len(ask))
	for i, t := range ask {
		ids[i] = t.ID
	}
	placed := 0
	for i, d := range sched.Plan(st, ids) {
		j, err := m.job(jobKey{ask[i].Workspace, ask[i].Job})
		if err != nil {
			return false, err
		}
		if j == nil { // deleted while it waited
			again = true
			placed++
			continue
		}
		t := j.own(ask[i])
		t.Why = d.Why
		if !j.fresh[t.ID] {
			j.dirty[t.ID] = true
		}
		if !d.Place {
			continue
		}
		placed++
		launch, err := m.launch(j, t)
		if err != nil {
			if code := berth.CodeOf(err); code == berth.Internal || code == berth.Unavailable {
				return false, err
			}
			m.endTask(t, &berth.Exit{Code: -1, Cause: "staging", Reason: err.Error()})
			again = true
			continue
		}
		t.State, t.Times.Placed = berth.TaskPlaced, m.now
		m.used[compute]++
		m.start = append(m.start, started{task: *t, launch: launch})
	}
	m.waiting[compute] = list[placed:] // the scheduler keeps the order: what it places is at the head
	return again, nil
}

// own is the job's own copy of a queued task: a move must not change what the loop holds before it is durable.
func (j *jobWork) own(queued *berth.Task) *berth.Task {
	for _, t := range j.tasks {
		if t.ID == queued.ID {
			return t
		}
	}
	t := *queued
	j.tasks = append(j.tasks, &t)
	return &t
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
		data, err := json.Marshal(map[string]any{"status": s.Status, "exit": s.State.Exit})
		if err != nil {
			return err
		}
		m.tx.Emit(berth.Event{
			Workspace: j.doc.Workspace, Subject: "jobs/" + j.doc.Name, Type: berth.EventJobStatus, Reason: s.State.Reason, Data: data,
		})
	}
	j.doc.Status, j.doc.Own = string(s.Status), own
	return m.tx.Save(j.doc)
}
