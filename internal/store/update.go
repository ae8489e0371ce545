package store

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/berthml/berth"
)

// Update runs fn in a transaction. When it returns nil the change is durable; when fn fails or
// panics nothing of it remains.
//
// Concurrent updates share one commit and so one wait for the disk. They run one after the other,
// each seeing the work of those before it, and an error undoes only its own. If the commit has to
// be tried again fn is run again: it must do nothing but use tx and set variables of its caller. fn
// must not call Update or View.
//
// An update of a term, see [DB.Lead], is refused with Unavailable when that term is over.
//
// If ctx ends before fn runs, Update returns its error and fn never runs. After that Update waits
// for the outcome.
func (db *DB) Update(ctx context.Context, fn func(*Tx) error) error {
	u := &update{fn: fn, term: berth.TermOf(ctx), outcome: make(chan outcome, 1)}
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &db.writer
	select {
	case <-w.quit:
		return ErrClosed
	default:
	}
	select {
	case w.queue <- u:
	case <-w.quit:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case o := <-u.outcome:
		return o.get()
	case <-ctx.Done():
		if u.state.CompareAndSwap(updateQueued, updateDropped) {
			return ctx.Err()
		}
	case <-w.ended:
	}
	select {
	case o := <-u.outcome:
		return o.get()
	case <-w.ended:
	}
	select { // the writer may have ended after it answered
	case o := <-u.outcome:
		return o.get()
	default:
		return ErrClosed
	}
}

// An update is a function that waits for its turn.
type update struct {
	fn      func(*Tx) error
	term    int64 // in which it has to run, 0 is any
	state   atomic.Int32
	outcome chan outcome
}

// An update is taken by the writer or dropped by its caller, whoever comes first.
const (
	updateQueued int32 = iota
	updateTaken
	updateDropped
)

// take reports whether the update is to be run.
func (u *update) take() bool {
	return u.state.CompareAndSwap(updateQueued, updateTaken) || u.state.Load() == updateTaken
}

// An outcome is how an update ended.
type outcome struct {
	err      error
	panicked bool
	value    any // of the panic
}

var errGoexit = errors.New("the function ended its goroutine; it runs on the store's")

// get returns the error, or goes on with the panic in the caller.
func (o outcome) get() error {
	if o.panicked {
		panic(o.value)
	}
	return o.err
}
