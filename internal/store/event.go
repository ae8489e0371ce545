package store

import (
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
)

const (
	eventColumns = "SELECT rev, time, scope, subject, type, reason, data FROM events"
	insertEvents = "INSERT INTO events (rev, time, scope, subject, type, reason, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
	// eventsAtOnce is how many events one statement writes.
	eventsAtOnce = 16
)

// insertTexts are the statements that insert 1, 2, … eventsAtOnce events.
var insertTexts = sync.OnceValue(func() *[eventsAtOnce + 1]string {
	var texts [eventsAtOnce + 1]string
	for n := range texts {
		texts[n] = insertEvents + strings.Repeat(", (?, ?, ?, ?, ?, ?, ?)", max(0, n-1))
	}
	return &texts
})

// Emit records an event. It is written with the transaction and gets its own revision; Rev is set
// here, and Time if it is zero. The event's Data must not change afterwards.
func (tx *Tx) Emit(e berth.Event) {
	e.Rev = tx.next()
	if e.Time.IsZero() {
		e.Time = tx.Now()
	}
	tx.events = append(tx.events, e)
}

// flush writes the events emitted so far.
func (tx *Tx) flush() error {
	for tx.saved < len(tx.events) {
		n := min(len(tx.events)-tx.saved, eventsAtOnce)
		args := make([]any, 0, 7*n)
		for _, e := range tx.events[tx.saved : tx.saved+n] {
			scope, err := tx.makeScope(e.Workspace, "")
			if err != nil {
				return err
			}
			args = append(args, int64(e.Rev), nanos(e.Time), scope, e.Subject, e.Type, e.Reason, []byte(e.Data))
		}
		if _, err := tx.exec(insertTexts()[n], args...); err != nil {
			return err
		}
		tx.saved += n
	}
	return nil
}

// EventQuery selects events. Empty conditions match all.
type EventQuery struct {
	Workspace, Subject string
	// From is where to start, exclusive: events after it, or with Desc events before it (0 is the
	// newest).
	From  berth.Rev
	Limit int  // 0 is 1000
	Desc  bool // newest first
}

// Events reads a page of events in the order of their revisions.
func (tx *Tx) Events(q EventQuery) ([]berth.Event, error) {
	if err := tx.flush(); err != nil {
		return nil, err
	}
	text, args := eventColumns+" WHERE rev > ?", []any{int64(q.From)}
	if q.Desc {
		text = eventColumns + " WHERE rev < ?"
		if q.From == 0 {
			args[0] = int64(1<<63 - 1)
		}
	}
	if q.Subject != "" {
		text += " AND subject = ?"
		args = append(args, q.Subject)
	}
	if q.Workspace != "" {
		scope, err := tx.scope(q.Workspace, "")
		if err != nil || scope == 0 {
			return nil, err
		}
		text += " AND scope = ?"
		args = append(args, scope)
	}
	text += " ORDER BY rev"
	if q.Desc {
		text += " DESC"
	}
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	return tx.readEvents(text+" LIMIT ?", append(args, q.Limit)...)
}

// readEvents runs a query of eventColumns.
func (tx *Tx) readEvents(text string, args ...any) ([]berth.Event, error) {
	var events []berth.Event
	var scopes []int64
	err := tx.query(func(r row) (bool, error) {
		var e berth.Event
		var at, scope int64
		if err := r.Scan((*int64)(&e.Rev), &at, &scope, &e.Subject, &e.Type, &e.Reason, (*[]byte)(&e.Data)); err != nil {
			return false, err
		}
		e.Time = fromNanos(at)
		events, scopes = append(events, e), append(scopes, scope)
		return true, nil
	}, text, args...)
	if err != nil {
		return nil, err
	}
	for i, id := range scopes { // not above: the connection serves one query at a time
		k, err := tx.scopeOf(id)
		if err != nil {
			return nil, err
		}
		events[i].Workspace = k.workspace
	}
	return events, nil
}

// PruneEvents deletes the oldest events, at most limit of those before a time, and returns how
// many. A Watch from a revision that precedes a deleted event is berth.Gone.
func (tx *Tx) PruneEvents(before time.Time, limit int) (int, error) {
	if err := tx.flush(); err != nil {
		return 0, err
	}
	var last int64
	n, end := 0, nanos(before)
	err := tx.query(func(r row) (bool, error) {
		var rev, at int64
		if err := r.Scan(&rev, &at); err != nil {
			return false, err
		}
		if at >= end {
			return false, nil
		}
		last, n = rev, n+1
		return true, nil
	}, "SELECT rev, time FROM events ORDER BY rev LIMIT ?", limit)
	if err != nil || n == 0 {
		return 0, err
	}
	if _, err := tx.exec("DELETE FROM events WHERE rev <= ?", last); err != nil {
		return 0, err
	}
	tx.pruned = berth.Rev(last)
	return n, nil
}
