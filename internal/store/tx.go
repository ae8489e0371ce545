package store

import (
	"context"
	"time"

	"github.com/berthml/berth"
)

// Tx is a transaction: a consistent view, and in Update the changes made so far. It belongs to the
// function it is passed to and to its goroutine.
type Tx struct {
	db *DB
	s  *session
	// ctx bounds the statements of a View. It is here because a Tx lives exactly as long as the
	// call that brought it.
	ctx    context.Context
	memory *memory // of the writer; nil in a View
	write  bool
	wrote  bool  // something
	failed error // the first error of the engine
	now    time.Time
	// shifted is how far the clock had been set when the transaction began, and jump by how much it
	// is set with it.
	shifted, jump time.Duration

	rev    berth.Rev // the last revision given out
	pruned berth.Rev
	events []berth.Event      // emitted
	saved  int                // how many of events are written
	fresh  map[scopeKey]int64 // scopes seen or made here, good for all once this commits

	derived map[scopeKey]any // by Derived
}

// Rev is the revision of the snapshot: a Watch from it sees what happens after. In Update it is the
// last one given out.
func (tx *Tx) Rev() (berth.Rev, error) {
	if tx.write {
		return tx.rev, nil
	}
	var rev, pruned int64
	_, err := tx.row([]any{&rev, &pruned}, selectHead)
	return berth.Rev(rev), err
}

// Now is the server's time when the transaction began, the same for everything it writes: see
// DB.Now.
func (tx *Tx) Now() time.Time {
	if tx.now.IsZero() {
		tx.now = tx.db.Now()
	}
	return tx.now
}

// next gives out a revision.
func (tx *Tx) next() berth.Rev {
	tx.rev++
	return tx.rev
}

// Derived returns the value that make computes from all documents of a kind in a workspace. It is
// computed once per transaction, and again when one of them has changed; a kind has one such value.
func Derived[T any](tx *Tx, workspace, kind string, make func([]*Doc) T) (v T, err error) {
	k := scopeKey{workspace, kind}
	if had, ok := tx.derived[k].(T); ok {
		return had, nil
	}
	docs, err := tx.All(Query{Workspace: workspace, Kind: kind})
	if err != nil {
		return v, err
	}
	if tx.derived == nil {
		tx.derived = map[scopeKey]any{}
	}
	v = make(docs)
	tx.derived[k] = v
	return v, nil
}

var errReadOnly = berth.Errorf(berth.Internal, "a View cannot write: use Update")

// exec runs a statement that writes.
func (tx *Tx) exec(q string, args ...any) (int64, error) {
	if !tx.write {
		return 0, errReadOnly
	}
	if tx.failed != nil {
		return 0, tx.failed
	}
	n, err := tx.s.exec(tx.ctx, q, args...)
	tx.wrote = tx.wrote || n > 0
	return n, tx.fail(err)
}

func (tx *Tx) query(scan func(row) (bool, error), q string, args ...any) error {
	if tx.failed != nil {
		return tx.failed
	}
	return tx.fail(tx.s.query(tx.ctx, scan, q, args...))
}

func (tx *Tx) row(dest []any, q string, args ...any) (bool, error) {
	if tx.failed != nil {
		return false, tx.failed
	}
	found, err := tx.s.row(tx.ctx, dest, q, args...)
	return found, tx.fail(err)
}

// fail gives an error its words and remembers it. After one the engine may have ended the
// transaction, so that later statements would run outside of any: none is let through, and the
// transaction fails even if its function goes on.
func (tx *Tx) fail(err error) error {
	if err != nil {
		err = tx.db.fault(err)
		tx.failed = err
	}
	return err
}

// nanos and fromNanos are how times are stored.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
