package store

import (
	"encoding/json"
	"slices"

	"github.com/berthml/berth"
)

// InsertTask adds a task. An existing one of that id is berth.Conflict.
func (tx *Tx) InsertTask(t *berth.Task) error {
	scope, err := tx.makeScope(t.Workspace, "")
	if err != nil {
		return err
	}
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	n, err := tx.exec("INSERT INTO tasks (seq, id, scope, job, active, body) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
		int64(tx.next()), string(t.ID), scope, t.Job, flag(t.State != berth.TaskDone), body)
	if err != nil {
		return err
	}
	if n == 0 {
		return berth.Errorf(berth.Conflict, "task %s already exists", t.ID)
	}
	tx.memory.keepTask(jobKey{scope, t.Job}, t)
	return nil
}

// SaveTask writes an existing task. A missing one is berth.NotFound.
func (tx *Tx) SaveTask(t *berth.Task) error {
	scope, err := tx.scope(t.Workspace, "")
	if err != nil {
		return err
	}
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	tx.next()
	text, args := "UPDATE tasks SET body = ? WHERE id = ?", []any{body, string(t.ID)}
	if active := t.State != berth.TaskDone; !tx.memory.stays(t.ID, active) {
		text, args = "UPDATE tasks SET body = ?, active = ? WHERE id = ?", []any{body, flag(active), string(t.ID)}
	}
	n, err := tx.exec(text, args...)
	if err != nil {
		return err
	}
	if n == 0 {
		return noTask(t.ID)
	}
	tx.memory.keepTask(jobKey{scope, t.Job}, t)
	return nil
}

// Task reads one task. A missing one is berth.NotFound.
func (tx *Tx) Task(id berth.TaskID) (*berth.Task, error) {
	if t := tx.memory.task(id); t != nil {
		return t, nil
	}
	tasks, err := tx.tasks("WHERE id = ?", string(id))
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		return nil, noTask(id)
	}
	return tasks[0], nil
}

// TasksOf reads the tasks of a job in the order of their creation.
func (tx *Tx) TasksOf(workspace, job string) ([]*berth.Task, error) {
	scope, err := tx.scope(workspace, "")
	if err != nil || scope == 0 {
		return nil, err
	}
	k := jobKey{scope, job}
	if tasks, ok := tx.memory.tasksOf(k); ok {
		return tasks, nil
	}
	tasks, err := tx.tasks("WHERE scope = ? AND job = ? ORDER BY seq", scope, job)
	if err == nil {
		tx.memory.keepTasks(k, tasks)
	}
	return tasks, err
}

// ActiveTasks reads the tasks that are not done, in the order of their creation. Done tasks cost
// nothing.
func (tx *Tx) ActiveTasks() ([]*berth.Task, error) {
	tasks, err := tx.tasks("WHERE active = 1 ORDER BY seq")
	return slices.DeleteFunc(tasks, func(t *berth.Task) bool { return t.State == berth.TaskDone }), err // unreadable ones
}

// tasks reads tasks. One whose row cannot be read is done, and its exit says why: it must not hold
// up the others.
func (tx *Tx) tasks(where string, args ...any) ([]*berth.Task, error) {
	var tasks []*berth.Task
	scopes := map[*berth.Task]int64{} // of unreadable ones
	err := tx.query(func(r row) (bool, error) {
		var id, job string
		var scope int64
		var body []byte
		if err := r.Scan(&id, &scope, &job, &body); err != nil {
			return false, err
		}
		t := new(berth.Task)
		if err := json.Unmarshal(body, t); err != nil {
			t = unreadable(berth.TaskID(id), job, err)
			scopes[t] = scope
		}
		tasks = append(tasks, t)
		return true, nil
	}, "SELECT id, scope, job, body FROM tasks "+where, args...)
	if err != nil {
		return nil, err
	}
	for t, scope := range scopes {
		k, err := tx.scopeOf(scope)
		if err != nil {
			return nil, err
		}
		t.Workspace = k.workspace
	}
	return tasks, nil
}

// unreadable is what is known of a task whose row cannot be read.
func unreadable(id berth.TaskID, job string, err error) *berth.Task {
	t := &berth.Task{ID: id, Job: job, State: berth.TaskDone, Exit: &berth.Exit{
		Code: -1, Cause: "lost", Reason: "the record of task " + string(id) + " in the database cannot be read: " + err.Error(),
	}}
	t.Attempt, t.Rank = id.Attempt()
	return t
}

func noTask(id berth.TaskID) error {
	return berth.Errorf(berth.NotFound, "task %s does not exist", id)
}
