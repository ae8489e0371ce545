package store

import (
	"context"
	"database/sql"
	"errors"
	"runtime/debug"
	"time"

	"github.com/berthml/berth"
)

const (
	// batchLimit and batchTime end a batch that new updates keep joining.
	batchLimit = 512
	batchTime  = 25 * time.Millisecond
	// batchTries is how often a batch is run when the connection is lost under it.
	batchTries = 3
)

// A writer runs all updates of a DB, on one goroutine and one connection. An update that finds the writer idle starts
// at once; those that come while it works share the next commit.
type writer struct {
	db    *DB
	s     *session // nil when the connection was lost
	pool  *sql.DB
	queue chan *update
	quit  chan struct{} // closed to stop
	ended chan struct{} // closed when stopped

	batch   []*update // taken and not answered yet
	running *update
}

func (w *writer) init(db *DB, s *session, pool *sql.DB) {
	w.db, w.s, w.pool = db, s, pool
	w.queue = make(chan *update, 2*batchLimit)
	w.quit, w.ended = make(chan struct{}), make(chan struct{})
}

// stop runs what is queued and ends the writer.
func (w *writer) stop() {
	close(w.quit)
	<-w.ended
}

func (w *writer) loop() {
	done := false
	defer func() {
		if done {
			if w.s != nil {
				w.s.close()
			}
			close(w.ended)
			return
		}
		// The running function ended this goroutine: runtime.Goexit, which is what FailNow of package testing does.
		// Its update fails, and another goroutine runs the rest of the batch.
		culprit := w.running
		w.running = nil
		w.rollback()
		culprit.outcome <- outcome{err: errGoexit}
		for i, u := range w.batch {
			if u == culprit {
				w.batch = append(w.batch[:i:i], w.batch[i+1:]...)
				break
			}
		}
		go w.loop()
	}()
	if len(w.batch) > 0 {
		w.serve()
	}
	for {
		select {
		case u := <-w.queue:
			w.batch = append(w.batch, u)
			w.serve()
			continue
		default:
		}
		select {
		case u := <-w.queue:
			w.batch = append(w.batch, u)
			w.serve()
		case <-w.quit:
			if len(w.queue) == 0 {
				done = true
				return
			}
		}
	}
}

// serve runs the batch, and what joins it, to its commit and answers all.
func (w *writer) serve() {
	var c *commit
	var err error
	for try := 1; ; try++ {
		c = &commit{w: w}
		if err = c.run(); err == nil {
			break
		}
		w.rollback()
		var lost *lostError
		if !errors.As(err, &lost) || w.s != nil || try == batchTries {
			break
		}
		w.db.log.Warn("connection to the database lost, trying again", "err", lost.err)
	}
	if err == nil {
		c.publish()
	}
	for i, u := range w.batch {
		if u.state.Load() == updateDropped {
			continue
		}
		if err != nil {
			u.outcome <- outcome{err: w.db.fault(unlost(err))}
			continue
		}
		u.outcome <- c.outcomes[i]
	}
	clear(w.batch)
	w.batch = w.batch[:0]
}

// rollback undoes whatever transaction is open. A session on which that does not work is given up.
func (w *writer) rollback() {
	if w.s == nil {
		return
	}
	if w.db.d == sqliteDialect {
		// Some errors have rolled back already; then this one fails and means nothing.
		w.s.exec(context.Background(), "ROLLBACK") //nolint:errcheck
		return
	}
	if _, err := w.s.exec(context.Background(), "ROLLBACK"); err != nil {
		w.s.close()
		w.s = nil
	}
}

// A commit is one try at running a batch.
type commit struct {
	w        *writer
	outcomes []outcome // by index in the batch
	kept     int       // how many of them succeeded
	began    time.Time
	now      time.Time
	since    berth.Rev // of the head when the transaction began
	rev      berth.Rev
	pruned   berth.Rev
	was      berth.Rev // pruned, when the transaction began
	events   []berth.Event
	fresh    map[scopeKey]int64
}

func (c *commit) run() error {
	c.began = time.Now()
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
		s, err := newSession(context.Background(), w.pool, w.db.d)
		if err != nil {
			return lost(err)
		}
		w.s = s
	}
	if _, err := w.s.exec(context.Background(), w.db.d.beginMove); err != nil {
		return lost(err)
	}
	var rev, pruned, now int64
	dest := []any{&rev, &pruned}
	if w.db.d != sqliteDialect {
		dest = append(dest, &now)
	}
	if _, err := w.s.row(context.Background(), dest, w.db.d.lockHead); err != nil {
		return lost(err)
	}
	c.now = fromNanos(now)
	if now == 0 {
		c.now = c.began.UTC().Round(0)
	}
	c.since, c.rev, c.pruned, c.was = berth.Rev(rev), berth.Rev(rev), berth.Rev(pruned), berth.Rev(pruned)
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
		if _, err := w.s.exec(context.Background(), "SAVEPOINT one"); err != nil {
			return outcome{}, lost(err)
		}
	}
	tx := &Tx{db: w.db, s: w.s, ctx: context.Background(), write: true, now: c.now, rev: c.rev, pruned: c.pruned}
	o := c.call(u, tx)
	if o.err != nil || o.panicked {
		return o, c.undo(save, o.err)
	}
	if save {
		if _, err := w.s.exec(context.Background(), "RELEASE one"); err != nil {
			return o, lost(err)
		}
	}
	c.kept++
	c.rev, c.pruned = tx.rev, tx.pruned
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
		err = tx.flush()
	}
	return outcome{err: err}
}

// undo takes back the update that failed with cause.
func (c *commit) undo(save bool, cause error) error {
	w := c.w
	if !save {
		w.rollback()
		if w.s == nil {
			return lost(cause)
		}
		return c.begin()
	}
	_, err := w.s.exec(context.Background(), "ROLLBACK TO one")
	if err == nil {
		_, err = w.s.exec(context.Background(), "RELEASE one")
	}
	if err == nil {
		return nil
	}
	// The engine has ended the whole transaction, for a reason that the function has seen.
	if code := berth.CodeOf(cause); cause != nil && (code == berth.Unavailable || code == berth.Internal) {
		return lost(cause)
	}
	return lost(err)
}

// end writes the head and commits.
func (c *commit) end() error {
	s := c.w.s
	if c.rev != c.since || c.pruned != c.was {
		args := []any{int64(c.rev), int64(c.pruned)}
		if c.w.db.note != nil {
			args = append(args, c.w.db.note(c.rev))
		}
		if _, err := s.exec(context.Background(), c.w.db.d.saveHead, args...); err != nil {
			return lost(err)
		}
	}
	_, err := s.exec(context.Background(), "COMMIT")
	return err
}

// publish makes a committed batch known.
func (c *commit) publish() {
	if c.kept == 0 {
		return
	}
	for k, id := range c.fresh {
		c.w.db.scopes.add(k, id)
	}
	c.w.db.feed.add(c.since, c.rev, c.events)
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
