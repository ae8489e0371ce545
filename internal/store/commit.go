package store

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/berthml/berth"
)

// A commit is one try at running a batch.
type commit struct {
	w        *writer
	ctx      context.Context // of its statements; nothing outside can end it
	outcomes []outcome       // by index in the batch
	wrote    bool
	kept     int // how many of them succeeded
	began    time.Time
	now      time.Time
	since    berth.Rev // of the head when the transaction began
	rev      berth.Rev
	pruned   berth.Rev
	was      berth.Rev     // pruned, when the transaction began
	known    berth.Rev     // from where on foreign and events are complete
	foreign  []berth.Event // of other servers, between what this one knew and since
	events   []berth.Event
	fresh    map[scopeKey]int64
}

func (c *commit) run() error {
	c.began, c.ctx = time.Now(), context.Background()
	if c.w.db.d != sqliteDialect {
		// A server that has become silent is as good as lost.
		ctx, cancel := context.WithTimeout(c.ctx, silence)
		defer cancel()
		c.ctx = ctx
	}
	if err := c.begin(); err != nil {
		return err
	}
	w := c.w
	for i := 0; ; i++ {
		if i == len(w.batch) {
			if i >= batchLimit || time.Since(c.began) > batchTime {
				break
			}
			select {
			case u := <-w.queue:
				w.batch = append(w.batch, u)
			default:
			}
			if i == len(w.batch) {
				break
			}
		}
		o, err := c.step(w.batch[i])
		if err != nil {
			return err
		}
		c.outcomes = append(c.outcomes, o)
	}
	if c.kept == 0 {
		w.rollback()
		return nil
	}
	return c.end()
}

// begin starts the transaction, keeps other servers from writing and reads where the revisions stand.
func (c *commit) begin() error {
	w := c.w
	if w.s == nil {
		s, err := newSession(c.ctx, w.pool, w.db.d)
		if err != nil {
			return lost(err)
		}
		w.s = s
	}
	if _, err := w.s.exec(c.ctx, w.db.d.beginMove); err != nil {
		return lost(err)
	}
	var rev, pruned, now int64
	dest := []any{&rev, &pruned}
	if w.db.d != sqliteDialect {
		dest = append(dest, &now)
	}
	if _, err := w.s.row(c.ctx, dest, w.db.d.lockHead); err != nil {
		return lost(err)
	}
	c.now = fromNanos(now)
	if now == 0 {
		c.now = c.began.UTC().Round(0)
	}
	c.since, c.rev, c.pruned, c.was = berth.Rev(rev), berth.Rev(rev), berth.Rev(pruned), berth.Rev(pruned)
	c.known, c.foreign = c.since, nil
	if known := w.db.feed.rev(); known < c.since {
		view := &Tx{db: w.db, s: w.s, ctx: c.ctx}
		var err error
		if c.foreign, c.known, err = view.missed(known, c.since); err != nil {
			return lost(err)
		}
	}
	return nil
}

// step runs one update. Its own failure is in the outcome; the error is for what ends the whole batch.
func (c *commit) step(u *update) (outcome, error) {
	if !u.take() {
		return outcome{}, nil
	}
	w := c.w
	// As long as nothing is to be kept the transaction itself is the savepoint.
	save := c.kept > 0
	if save {
		if _, err := w.s.exec(c.ctx, "SAVEPOINT one"); err != nil {
			return outcome{}, lost(err)
		}
	}
	tx := &Tx{db: w.db, s: w.s, ctx: c.ctx, write: true, now: c.now, rev: c.rev, pruned: c.pruned}
	o := c.call(u, tx)
	if o.err != nil || o.panicked {
		return o, c.undo(save, o.err)
	}
	if save {
		if _, err := w.s.exec(c.ctx, "RELEASE one"); err != nil {
			return o, lost(err)
		}
	}
	c.kept++
	c.rev, c.pruned, c.wrote = tx.rev, tx.pruned, c.wrote || tx.wrote
	c.events = append(c.events, tx.events...)
	for k, id := range tx.fresh {
		if c.fresh == nil {
			c.fresh = make(map[scopeKey]int64)
		}
		c.fresh[k] = id
	}
	return o, nil
}

// call runs the function of an update and writes the events it emitted.
func (c *commit) call(u *update, tx *Tx) (o outcome) {
	defer func() {
		if c.w.running == nil {
			return
		}
		if v := recover(); v != nil {
			c.w.running = nil
			c.w.db.log.Error("update panicked", "panic", v, "stack", string(debug.Stack()))
			o = outcome{panicked: true, value: v}
		}
	}()
	c.w.running = u
	err := u.fn(tx)
	c.w.running = nil
	if err == nil {
		err = tx.failed
	}
	if err == nil {
		err = tx.flush()
	}
	return outcome{err: err}
}

// undo takes back the update that failed with cause, nil after a panic.
func (c *commit) undo(save bool, cause error) error {
	w := c.w
	if !save {
		w.rollback()
		return c.begin()
	}
	_, err := w.s.exec(c.ctx, "ROLLBACK TO one")
	if err == nil {
		_, err = w.s.exec(c.ctx, "RELEASE one")
	}
	if err != nil && berth.CodeOf(cause) == berth.Unavailable {
		err = cause // why the engine has ended the whole transaction
	}
	if err != nil {
		return lost(err)
	}
	return nil
}

// end writes the head and commits.
func (c *commit) end() error {
	xid, err := c.head()
	if err != nil {
		return lost(err)
	}
	if _, err = c.w.s.exec(c.ctx, "COMMIT"); err == nil || c.w.db.d == sqliteDialect {
		return err
	}
	// The answer is lost, the commit perhaps not.
	c.w.rollback()
	if c.w.s != nil {
		return err
	}
	if xid == "" {
		return lost(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), inquiry)
	defer cancel()
	done, unknown := committed(ctx, c.w.pool, xid)
	switch {
	case unknown != nil:
		return berth.Errorf(berth.Unavailable, "the connection to database %s was lost during a commit, whether it was made is not known: %w", c.w.db.where, err)
	case !done:
		return lost(err)
	}
	return nil
}

// head writes the head row, and returns the transaction's id from engines that can be asked for its fate.
func (c *commit) head() (xid string, err error) {
	db, s := c.w.db, c.w.s
	switch {
	case !c.wrote:
		return "", nil
	case db.note == nil && c.rev == c.since && c.pruned == c.was:
		return "", nil
	case db.note == nil:
		_, err = s.exec(c.ctx, db.d.saveHead, int64(c.rev), int64(c.pruned))
		return "", err
	}
	var told string
	_, err = s.row(c.ctx, []any{&xid, &told}, db.d.saveHead, int64(c.rev), int64(c.pruned), db.note(c.rev))
	return xid, err
}

// publish makes a committed batch known.
func (c *commit) publish() {
	if c.kept == 0 {
		return
	}
	for k, id := range c.fresh {
		c.w.db.scopes.add(k, id)
	}
	c.w.db.feed.add(c.known, c.rev, append(c.foreign, c.events...))
}

// A lostError is one after which nothing of the batch has been committed, so that it can be run again.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

func lost(err error) error { return &lostError{err} }

func unlost(err error) error {
	var l *lostError
	if errors.As(err, &l) {
		return l.err
	}
	return err
}
