package store

import (
	"encoding/json"

	"github.com/berthml/berth"
)

// Work reads how far a job with mini-batches has come, nil when it has none yet.
func (tx *Tx) Work(workspace, job string) (*berth.Work, error) {
	scope, err := tx.scope(workspace, "")
	if err != nil || scope == 0 {
		return nil, err
	}
	var body []byte
	found, err := tx.row([]any{&body}, "SELECT body FROM works WHERE scope = ? AND job = ?", scope, job)
	if err != nil || !found {
		return nil, err
	}
	w := new(berth.Work)
	if err := json.Unmarshal(body, w); err != nil {
		return nil, berth.Errorf(berth.Internal, "the progress of job %s in the database cannot be read: %w", job, err)
	}
	return w, nil
}

// SaveWork writes how far a job has come.
func (tx *Tx) SaveWork(workspace, job string, w *berth.Work) error {
	scope, err := tx.makeScope(workspace, "")
	if err != nil {
		return err
	}
	body, err := json.Marshal(w)
	if err != nil {
		return err
	}
	tx.next()
	_, err = tx.exec("INSERT INTO works (scope, job, body) VALUES (?, ?, ?) ON CONFLICT (scope, job) DO UPDATE SET body = excluded.body", scope, job, body)
	return err
}

// tableRows is how the items of a mini-batch of a table are kept; those of files are a list.
type tableRows struct {
	Items []string `json:"items"`
	Rows  int      `json:"rows"`
}

// InsertBatches adds mini-batches that wait.
func (tx *Tx) InsertBatches(workspace, job string, batches []berth.MiniBatch) error {
	scope, err := tx.makeScope(workspace, "")
	if err != nil {
		return err
	}
	tx.next()
	for i := range batches {
		b := &batches[i]
		var work []byte
		if b.Rows > 0 {
			work, err = json.Marshal(tableRows{b.Items, b.Rows})
		} else {
			work, err = json.Marshal(b.Items)
		}
		if err != nil {
			return err
		}
		_, err = tx.exec("INSERT INTO batches (scope, job, number, state, owner, tries, failed, start, size, loose, error, work) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			scope, job, b.Number, int(b.State), string(b.Owner), b.Tries, b.Failed, b.Start, b.Size, flag(b.Loose), b.Error, work)
		if err != nil {
			return err
		}
	}
	return nil
}

// SaveBatch writes everything of a mini-batch but its items.
func (tx *Tx) SaveBatch(workspace, job string, b *berth.MiniBatch) error {
	scope, err := tx.scope(workspace, "")
	if err != nil {
		return err
	}
	tx.next()
	n, err := tx.exec("UPDATE batches SET state = ?, owner = ?, tries = ?, failed = ?, start = ?, size = ?, loose = ?, error = ? WHERE scope = ? AND job = ? AND number = ?",
		int(b.State), string(b.Owner), b.Tries, b.Failed, b.Start, b.Size, flag(b.Loose), b.Error, scope, job, b.Number)
	if err == nil && n == 0 {
		err = berth.Errorf(berth.NotFound, "job %s has no mini-batch %d", job, b.Number)
	}
	return err
}

// BatchQuery chooses mini-batches of a job.
type BatchQuery struct {
	State berth.BatchState
	After int // numbers greater than this
	Limit int // 0 is no limit
}

// Batches reads mini-batches of a job in the order of their numbers.
func (tx *Tx) Batches(workspace, job string, q BatchQuery) ([]*berth.MiniBatch, error) {
	where, args := "state = ? AND number > ? ORDER BY number", []any{int(q.State), q.After}
	if q.Limit > 0 {
		where += " LIMIT ?"
		args = append(args, q.Limit)
	}
	return tx.batches(workspace, job, where, args...)
}

// Batch reads one mini-batch. A missing one is berth.NotFound.
func (tx *Tx) Batch(workspace, job string, number int) (*berth.MiniBatch, error) {
	list, err := tx.batches(workspace, job, "number = ?", number)
	if err == nil && len(list) == 0 {
		return nil, berth.Errorf(berth.NotFound, "job %s has no mini-batch %d", job, number)
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (tx *Tx) batches(workspace, job, where string, args ...any) ([]*berth.MiniBatch, error) {
	scope, err := tx.scope(workspace, "")
	if err != nil || scope == 0 {
		return nil, err
	}
	var out []*berth.MiniBatch
	err = tx.query(func(r row) (bool, error) {
		b := new(berth.MiniBatch)
		var state, loose int
		var owner string
		var work []byte
		if err := r.Scan(&b.Number, &state, &owner, &b.Tries, &b.Failed, &b.Start, &b.Size, &loose, &b.Error, &work); err != nil {
			return false, err
		}
		b.State, b.Owner, b.Loose = berth.BatchState(state), berth.TaskID(owner), loose != 0
		out = append(out, b)
		if len(work) > 0 && work[0] == '{' {
			var t tableRows
			err := json.Unmarshal(work, &t)
			b.Items, b.Rows = t.Items, t.Rows
			return true, err
		}
		return true, json.Unmarshal(work, &b.Items)
	}, "SELECT number, state, owner, tries, failed, start, size, loose, error, work FROM batches WHERE scope = ? AND job = ? AND "+where, append([]any{scope, job}, args...)...)
	return out, err
}

// DeleteBatches removes the mini-batches of a job, and keeps how far it has come.
func (tx *Tx) DeleteBatches(workspace, job string) error {
	scope, err := tx.scope(workspace, "")
	if err != nil || scope == 0 {
		return err
	}
	tx.next()
	_, err = tx.exec("DELETE FROM batches WHERE scope = ? AND job = ?", scope, job)
	return err
}

// DeleteWork removes the mini-batches of a job; none is success.
func (tx *Tx) DeleteWork(workspace, job string) error {
	scope, err := tx.scope(workspace, "")
	if err != nil || scope == 0 {
		return err
	}
	tx.next()
	for _, table := range []string{"batches", "works"} {
		if _, err := tx.exec("DELETE FROM "+table+" WHERE scope = ? AND job = ?", scope, job); err != nil {
			return err
		}
	}
	return nil
}
