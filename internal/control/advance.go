package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/cost"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/store"
)

// move is one pass over some jobs and pools: what a transaction decided, to be acted on once it is durable.
type move struct {
	c   *Control
	tx  *store.Tx
	now time.Time
	at  jobKey // the job that is worked on now, if any

	jobs   map[jobKey]*jobWork
	places map[string]place      // workspaces that were read
	pools  map[poolKey]bool      // where something is to be decided
	fresh  map[poolKey][]string  // gangs that have no reason yet
	nodes  map[string]nodeChange // nodes to save
	start  []started
	stop   []stopping
	ended  []*placement
	add    []berth.Node
	remove []berth.Node
	moved  [][2]berth.NodeState // from, to
	over   []string             // directories nobody needs any more
	lost   []lost
	forget []poolKey        // computes whose targets nobody needs any more
	back   []*driver.Target // were away
	market *market          // quotas and sizes, read once
	met    bool             // the nodes that others made were read
	above  []jobKey         // pipelines whose steps changed
	logs   []logWrite

	portsTaken map[int]bool // spans of reserved ports, by the first
	portsAsked []int        // spans to reserve, by the ports needed
	anew       bool         // the picture was made anew from the store
}

type started struct {
	task   berth.Task
	launch berth.Launch
}

type stopping struct {
	task berth.TaskID
	driver.Stop
}

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

// touched is what events said has changed.
type touched struct {
	jobs  map[jobKey]bool
	pools map[poolKey]bool            // to be read again and decided upon
	nodes map[poolKey]map[string]bool // nodes to be read again; their pools to be decided upon
	due   []poolKey                   // to be decided upon
	// budgets are workspaces whose budgets are to be read again; their pools to be decided upon.
	budgets map[string]bool
	limits  bool // those of users are to be read again
	clock   bool // it was set
}

// advance makes the next step of each touched job and pool in one transaction, then acts. The transaction changes the loop's picture
// of the world as it goes; when it has to be run again, that picture is first made anew from the store.
func (c *Control) advance(ctx context.Context, t touched) {
	begin := time.Now()
	defer func() { c.cycles.Observe(time.Since(begin)) }()
	var m *move
	c.ports.fill()
	backoff := 50 * time.Millisecond
	for {
		var faulty bool
		var err error
		if m, faulty, err = c.runCycle(ctx, t); err == nil {
			c.stale = false
			break
		}
		if ctx.Err() != nil {
			return
		}
		if faulty {
			t.jobs[m.at] = true // so that it ends
			continue
		}
		c.o.Log.Error("jobs could not be advanced; trying again", "jobs", len(t.jobs), "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
			backoff = min(2*backoff, 5*time.Second)
		}
	}
	c.act(ctx, m)
}

// newMove begins a move over a picture of the world that is what the store says.
func (c *Control) newMove(tx *store.Tx) (*move, error) {
	anew := c.stale
	if d := tx.Shifted() - c.shifted; d != 0 {
		c.shiftMemory(d)
		c.shifted, anew = c.shifted+d, true
	}
	if anew {
		if err := c.read(tx); err != nil {
			return nil, err
		}
	}
	c.stale = true // until this is durable
	for _, p := range c.pools {
		p.before = p.memory
	}
	return &move{
		c: c, tx: tx, now: tx.Now(), jobs: map[jobKey]*jobWork{}, pools: map[poolKey]bool{}, fresh: map[poolKey][]string{},
		nodes: map[string]nodeChange{}, anew: anew,
	}, nil
}

// act does what a move decided.
func (c *Control) act(ctx context.Context, m *move) {
	for _, p := range m.ended {
		c.ended(p.task.Compute, m.now)
		delete(c.placed, p.task.ID)
		p.over.Store(true)
		select {
		case <-p.started:
		default:
			c.leaving[p.task.ID] = p
		}
		c.removeTask(ctx, p)
	}
	for _, s := range m.moved {
		c.o.Moved(s[0], s[1])
	}
	c.writeLogs(m)
	for k, j := range m.jobs {
		if f := c.faults[k]; f != nil && !f.ignored && (!f.ends || berth.JobStatus(j.doc.Status).Terminal()) {
			delete(c.faults, k)
		}
		if j.pipeline && berth.JobStatus(j.doc.Status).Terminal() {
			delete(c.logged, k)
		}
	}
	for _, s := range m.start {
		c.startTask(ctx, s)
	}
	c.settlePorts(m)
	for _, s := range m.stop {
		if p := c.placed[s.task]; p != nil {
			c.stopTask(ctx, p, s.Stop)
		}
	}
	for _, n := range m.add {
		c.addNode(ctx, n)
	}
	for _, n := range m.remove {
		c.removeNode(ctx, n)
	}
	c.greet(ctx, m.back)
	c.loseAll(ctx, m.lost)
	for _, k := range m.forget {
		if err := c.o.Targets.Forget(k.workspace, k.compute); err != nil {
			c.o.Log.Warn("target not let go", "compute", k.compute, "err", err)
		}
	}
	for _, dir := range m.over {
		c.acts.Go(func() { c.discard(dir) })
	}
}

// discard deletes what the attempts at a job handed on to each other.
func (c *Control) discard(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		c.o.Log.Warn("kept outputs not deleted", "dir", dir, "err", err)
	}
}

func (m *move) run(t touched) error {
	for k := range t.pools {
		if err := m.refresh(k); err != nil {
			return err
		}
	}
	for k, names := range t.nodes {
		if err := m.refreshNodes(k, names); err != nil {
			return err
		}
	}
	if t.limits {
		if err := m.c.readLimits(m.tx); err != nil {
			return err
		}
	}
	for workspace := range t.budgets {
		if err := m.c.readBudgets(m.tx, workspace); err != nil {
			return err
		}
	}
	for k := range m.c.pools {
		if t.budgets[k.workspace] {
			m.pools[k] = true
		}
	}
	for _, k := range t.due {
		m.pools[k] = true
	}
	if m.anew { // when to look at each is not known any more
		for k := range m.c.pools {
			m.pools[k] = true
		}
	}
	var jobs []*jobWork
	for k := range t.jobs {
		m.at = k
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
	for _, j := range jobs {
		m.at = j.key()
		if err := m.step(j); err != nil {
			return err
		}
	}
	m.at = jobKey{}
	waited := m.c.reserved(nil)
	for _, local := range []bool{false, true} { // the machine itself last: a node may need it for itself
		for k := range m.pools {
			if (k.workspace == "") != local {
				continue
			}
			if err := m.decide(k); err != nil {
				return err
			}
		}
	}
	if m.c.reserved(nil) != waited { // one pool needs the machine for itself, or does not any more: that concerns all
		for k := range m.c.pools {
			if err := m.decide(k); err != nil {
				return err
			}
		}
	}
	for _, j := range m.jobs {
		if j.pipeline {
			continue // after their steps
		}
		m.at = j.key()
		if err := m.save(j); err != nil {
			return err
		}
	}
	m.at = jobKey{}
	if err := m.pipelines(); err != nil {
		return err
	}
	return m.saveNodes()
}

// decide sizes a pool and places what can be placed. What was placed may have left others short of nodes that seemed enough, so it
// looks again until nothing more is placed.
func (m *move) decide(k poolKey) error {
	for {
		p := m.c.pools[k]
		if p == nil {
			return nil
		}
		if err := m.resize(p); err != nil {
			return err
		}
		before := len(m.start)
		for again := true; again; {
			var err error
			if again, err = m.place(p); err != nil {
				return err
			}
		}
		if p.single() || p.queue.Len() == 0 || len(m.start) == before {
			return nil
		}
	}
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
