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
	w   *writer
	ctx context.Context // of its statements; nothing outside can end it
	// careful sets a savepoint before each update. Where that costs a journey it is done without,
	// and a batch in which an update has to be undone is run again carefully.
	careful  bool
	outcomes []outcome // by index in the batch
	kept     int       // how many of them succeeded
	wrote    bool      // any of them
	failed   error     // of the engine, in one of them
	began    time.Time
	at       head // when the transaction began
	now      time.Time
	shifted  time.Duration // how far the clock had been set then
	jump     time.Duration // by how much it is set with this commit
	rev      berth.Rev
	pruned   berth.Rev
	known    berth.Rev     // from where on foreign and events are complete
	foreign  []berth.Event // of other servers, between what this one knew and at
	events   []berth.Event
	fresh    map[scopeKey]int64
}

func (c *commit) run() error {
	c.began, c.ctx = time.Now(), context.Background()
	if c.w.db.d.remote {
		// A server that has become silent is as good as lost.
		ctx, cancel := context.WithTimeoutCause(c.ctx, silence, errSilent)
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

// begin starts the transaction, keeps other servers from writing and reads where the revisions
// stand.
func (c *commit) begin() error {
	w := c.w
	if w.s == nil {
		s, err := newSession(c.ctx, w.pool, w.db.d)
		if err != nil {
			return lost(err)
		}
		w.s = s
	}
	at, err := w.db.d.begin(c.ctx, w.s)
	if err != nil {
		return lost(err)
	}
	if err := w.db.refuse(0, at.leader); err != nil {
		return err
	}
	c.at, c.rev, c.pruned = at, at.rev, at.pruned
	c.now, c.shifted, c.jump = w.db.clock.now(), w.db.clock.base.Load().shifted, 0
	c.known, c.foreign = at.rev, nil
	known := w.db.feed.rev()
	if known != at.rev {
		w.memory.clear()
	}
	if known < at.rev {
		view := &Tx{db: w.db, s: w.s, ctx: c.ctx}
		if c.foreign, c.known, err = view.missed(known, at.rev); err != nil {
			return lost(err)
		}
	}
	return nil
}

// step runs one update. Its own failure is in the outcome; the error is for what ends the whole
// batch.
func (c *commit) step(u *update) (outcome, error) {
	if !u.take() {
		return outcome{}, nil
	}
	w := c.w
	if u.term != 0 {
		if err := w.db.refuse(u.term, c.at.leader); err != nil {
			return outcome{err: err}, nil //nolint:nilerr // it is the update's own
		}
	}
	// As long as nothing is to be kept the transaction itself is the savepoint.
	save := c.careful && c.kept > 0
	if save {
		if _, err := w.s.exec(c.ctx, "SAVEPOINT one"); err != nil {
			return outcome{}, lost(err)
		}
	}
	if w.db.rehearse {
		if err := c.rehearse(u); err != nil {
			return outcome{}, lost(err)
		}
	}
	tx := c.tx()
	o := c.call(u, tx)
	if tx.failed != nil {
		c.failed = tx.failed
	}
	if o.err != nil || o.panicked {
		if !tx.wrote && tx.failed == nil && !save {
			return o, nil // there is nothing to undo
		}
		return o, c.undo(save, o.err)
	}
	if save {
		if _, err := w.s.exec(c.ctx, "RELEASE one"); err != nil {
			return o, lost(err)
		}
	}
	c.keep(tx)
	return o, nil
}

func (c *commit) tx() *Tx {
	return &Tx{db: c.w.db, s: c.w.s, ctx: c.ctx, memory: c.w.memory, write: true, now: c.now, shifted: c.shifted + c.jump, rev: c.rev, pruned: c.pruned}
}

// rehearse runs an update and undoes it, whatever comes of it.
func (c *commit) rehearse(u *update) error {
	if _, err := c.w.s.exec(c.ctx, "SAVEPOINT rehearsal"); err != nil {
		return err
	}
	c.call(u, c.tx())
	c.w.memory.clear()
	_, err := c.w.s.exec(c.ctx, "ROLLBACK TO rehearsal")
	if err == nil {
		_, err = c.w.s.exec(c.ctx, "RELEASE rehearsal")
	}
	return err
}

// keep adds an update that succeeded.
func (c *commit) keep(tx *Tx) {
	c.kept++
	if tx.jump != 0 {
		c.now, c.jump = tx.now, c.jump+tx.jump
	}
	c.rev, c.pruned, c.wrote = tx.rev, tx.pruned, c.wrote || tx.wrote
	c.events = append(c.events, tx.events...)
	for k, id := range tx.fresh {
		if c.fresh == nil {
			c.fresh = make(map[scopeKey]int64)
		}
		c.fresh[k] = id
	}
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
	switch {
	case c.kept == 0:
		w.rollback()
		return c.begin()
	case !save:
		return errCareless
	}
	w.memory.clear()
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
	w := c.w
	var to *head
	if c.wrote && (w.db.d.remote || c.rev != c.at.rev || c.pruned != c.at.pruned) {
		w.commits++
		to = &head{rev: c.rev, pruned: c.pruned, server: w.db.server, number: w.commits}
	}
	err := w.db.d.commit(c.ctx, w.s, to)
	if err == nil && w.db.file != nil {
		err = w.db.file.check() // what went into a file that nobody finds again is not kept
	}
	if err == nil || !w.db.d.remote {
		return err
	}
	w.rollback()
	switch {
	case w.s != nil:
		return err
	case to == nil:
		return lost(err) // there was nothing to commit
	}
	// The answer is lost, the commit perhaps not.
	ctx, cancel := context.WithTimeout(context.Background(), inquiry)
	defer cancel()
	done, unknown := committed(ctx, w.pool, to)
	switch {
	case unknown != nil:
		return berth.Errorf(berth.Unavailable, "the connection to database %s was lost during a commit, which may or may not have succeeded: %w",
			w.db.where, err)
	case !done:
		return lost(err)
	}
	return nil
}

// publish makes a committed batch known.
func (c *commit) publish() {
	if c.jump != 0 {
		c.w.db.clock.follow(c.jump)
		c.w.db.log.Warn("the clock was set; the times of what lives moved with it", "by", c.jump)
	}
	if c.kept == 0 || !c.wrote { // revisions that were counted and not used are not kept, and will be used by others
		return
	}
	for k, id := range c.fresh {
		c.w.db.scopes.add(k, id)
	}
	if c.w.db.committed != nil {
		c.w.db.committed()
	}
	c.w.db.feed.add(c.known, c.rev, append(c.foreign, c.events...))
}

// A lostError is one after which nothing of the batch has been committed, so that it can be run
// again.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

func lost(err error) error { return &lostError{err} }

// errSilent says that the database server took too long.
var errSilent = errors.New("no answer for too long")

// errCareless says that a batch needs savepoints.
var errCareless = errors.New("an update has to be undone")
