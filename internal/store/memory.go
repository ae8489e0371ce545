package store

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/berthml/berth"
)

// A memory is what updates read and wrote last, so that the next one does not read it again: within
// milliseconds a job and its tasks are looked at by whoever submits, places, starts and ends them.
// It belongs to the writer and follows everything written there. It is emptied whenever something
// is undone, and when somebody else has written; where others can write while an update runs there
// is none: a nil memory remembers nothing.
type memory struct {
	docs  shelf[docKey, *Doc]
	tasks shelf[jobKey, *jobTasks]
	jobs  shelf[berth.TaskID, jobKey]
}

type docKey struct {
	scope        int64
	key, version string
}

type jobKey struct {
	scope int64
	job   string
}

// jobTasks is tasks of a job; all of them, in their order, where whole is set.
type jobTasks struct {
	list  []*berth.Task
	whole bool
}

const (
	// remembered is how many entries of each kind are kept at least; at most twice as many.
	remembered = 512
	// rememberedBytes is the largest document that is, and rememberedTasks the most tasks of a job.
	rememberedBytes = 8 << 10
	rememberedTasks = 64
)

func (m *memory) clear() {
	if m != nil {
		*m = memory{}
	}
}

// doc is a copy of a document, nil when it is not remembered.
func (m *memory) doc(k docKey) *Doc {
	if m == nil {
		return nil
	}
	d, ok := m.docs.get(k)
	if !ok {
		return nil
	}
	c := *d
	return &c
}

// keepDoc remembers a document as it would be read. Its long fields are shared, and nobody writes
// into them.
func (m *memory) keepDoc(k docKey, d *Doc) {
	if m == nil {
		return
	}
	if len(d.Body)+len(d.Own) > rememberedBytes {
		m.docs.drop(k)
		return
	}
	c := *d
	c.Created, c.Updated = fromNanos(nanos(d.Created)), fromNanos(nanos(d.Updated))
	m.docs.put(k, &c)
}

// saved follows a document that was written over. What Save does not write stays as it was.
func (m *memory) saved(k docKey, d *Doc) {
	if m == nil {
		return
	}
	old, ok := m.docs.get(k)
	if !ok {
		return
	}
	c := *d
	c.Workspace, c.Kind, c.Name, c.Version, c.ID, c.Created = old.Workspace, old.Kind, old.Name, old.Version, old.ID, old.Created
	m.keepDoc(k, &c)
}

// onlyState is the ID of the stored document if d differs from it in nothing but its status and
// what Berth owns, and 0 otherwise: an engine writes every index again whose columns are set, to
// what they were or not.
func (m *memory) onlyState(k docKey, d *Doc) int64 {
	if m == nil {
		return 0
	}
	old, ok := m.docs.get(k)
	if !ok || old.CreatedBy != d.CreatedBy || old.Archived != d.Archived || old.Hash != d.Hash || old.Parent != d.Parent || !bytes.Equal(old.Body, d.Body) {
		return 0
	}
	return old.ID
}

func (m *memory) dropDoc(k docKey) {
	if m != nil {
		m.docs.drop(k)
	}
}

// task is a copy of a task, nil when it is not remembered.
func (m *memory) task(id berth.TaskID) *berth.Task {
	if t := m.find(id); t != nil {
		return copyTask(t)
	}
	return nil
}

// stays says that the stored task is known to be active, or not to be, already.
func (m *memory) stays(id berth.TaskID, active bool) bool {
	t := m.find(id)
	return t != nil && (t.State != berth.TaskDone) == active
}

func (m *memory) find(id berth.TaskID) *berth.Task {
	if m == nil {
		return nil
	}
	k, ok := m.jobs.get(id)
	if !ok {
		return nil
	}
	j, ok := m.tasks.get(k)
	if !ok {
		return nil
	}
	if i := j.index(id); i >= 0 {
		return j.list[i]
	}
	return nil
}

// tasksOf is a copy of the tasks of a job; ok is false when it is not known whether they are all.
func (m *memory) tasksOf(k jobKey) (tasks []*berth.Task, ok bool) {
	if m == nil {
		return nil, false
	}
	j, ok := m.tasks.get(k)
	if !ok || !j.whole {
		return nil, false
	}
	for _, t := range j.list {
		tasks = append(tasks, copyTask(t))
	}
	return tasks, true
}

// keepTask remembers a task that was read or written. One that is new comes last.
func (m *memory) keepTask(k jobKey, t *berth.Task) {
	if m == nil {
		return
	}
	j, ok := m.tasks.get(k)
	if !ok {
		j = &jobTasks{}
		m.tasks.put(k, j)
	}
	switch i := j.index(t.ID); {
	case i >= 0:
		j.list[i] = copyTask(t)
	case len(j.list) == rememberedTasks:
		m.tasks.drop(k)
	default:
		j.list = append(j.list, copyTask(t))
	}
	m.jobs.put(t.ID, k)
}

// keepTasks remembers all tasks of a job.
func (m *memory) keepTasks(k jobKey, tasks []*berth.Task) {
	if m == nil {
		return
	}
	if len(tasks) > rememberedTasks {
		m.tasks.drop(k)
		return
	}
	m.tasks.put(k, &jobTasks{whole: true})
	for _, t := range tasks {
		m.keepTask(k, t)
	}
}

func (m *memory) dropTasks(k jobKey) {
	if m != nil {
		m.tasks.drop(k)
	}
}

func (j *jobTasks) index(id berth.TaskID) int {
	return slices.IndexFunc(j.list, func(t *berth.Task) bool { return t.ID == id })
}

// copyTask is a task as it would be read.
func copyTask(t *berth.Task) *berth.Task {
	c := *t
	if t.Exit != nil {
		e := *t.Exit
		c.Exit = &e
	}
	c.Services = maps.Clone(t.Services)
	w := &c.Times
	for _, at := range []*time.Time{
		&c.Created, &c.Seen, &c.Usage.At, &w.Submitted, &w.Placed, &w.Staging, &w.Environment, &w.Started, &w.FirstOutput, &w.Uploading, &w.Ended,
	} {
		*at = at.Round(0) // the store has no monotonic clock
	}
	return &c
}

// A shelf is a map that forgets what was not used for long.
type shelf[K comparable, V any] struct{ young, old map[K]V }

func (s *shelf[K, V]) get(k K) (V, bool) {
	if v, ok := s.young[k]; ok {
		return v, true
	}
	v, ok := s.old[k]
	if ok {
		s.put(k, v)
	}
	return v, ok
}

func (s *shelf[K, V]) put(k K, v V) {
	if len(s.young) >= remembered {
		s.old, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = make(map[K]V)
	}
	s.young[k] = v
}

func (s *shelf[K, V]) drop(k K) {
	delete(s.young, k)
	delete(s.old, k)
}
