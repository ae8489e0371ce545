package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/berthml/berth"
)

const (
	// batchLimit and batchTime end a batch that new updates keep joining.
	batchLimit = 512
	batchTime  = 25 * time.Millisecond
	// batchTries is how often a batch is run when the connection is lost under it.
	batchTries = 3
	// silence is how long a database server may take over a batch.
	silence = time.Minute
	// inquiry is how long to ask a database server that was lost during a commit what became of it.
	inquiry = 15 * time.Second
)

// A writer runs all updates of a DB, on one goroutine and one connection. An update that finds the
// writer idle starts at once; those that come while it works share the next commit.
type writer struct {
	db     *DB
	s      *session // nil when the connection was lost
	pool   *sql.DB
	memory *memory
	queue  chan *update
	quit   chan struct{} // closed to stop
	ended  chan struct{} // closed when stopped

	batch   []*update // taken and not answered yet
	running *update
	commits int64 // tried, that write
}

func (w *writer) init(db *DB, s *session, pool *sql.DB) {
	w.db, w.s, w.pool = db, s, pool
	if !db.d.remote {
		w.memory = &memory{}
	}
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
		// The running function ended this goroutine: runtime.Goexit, which is what FailNow of
		// package testing does. Its update fails, and another goroutine runs the rest of the batch.
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
	if u := w.db.jumped(); u != nil {
		w.batch = slices.Insert(w.batch, 0, u)
	}
	begin := time.Now()
	c, err := w.try()
	w.db.stats.served(len(w.batch), time.Since(begin), err)
	if err == nil {
		c.publish()
	} else {
		err = w.db.fault(err)
	}
	switch {
	case err != nil:
		w.db.trouble.Store(&err)
	case c.failed != nil:
		w.db.trouble.Store(&c.failed)
	case c.wrote:
		w.db.trouble.Store(nil)
	}
	for i, u := range w.batch {
		switch {
		case u.state.Load() == updateDropped:
		case err != nil:
			u.outcome <- outcome{err: err}
		default:
			u.outcome <- c.outcomes[i]
		}
	}
	clear(w.batch)
	w.batch = w.batch[:0]
}

// try runs the batch until it is committed or cannot be.
func (w *writer) try() (*commit, error) {
	careful := !w.db.d.remote
	for tries := 1; ; {
		c := &commit{w: w, careful: careful}
		err := c.run()
		if err == nil {
			return c, nil
		}
		w.rollback()
		var lost *lostError
		switch {
		case errors.Is(context.Cause(c.ctx), errSilent):
			return nil, berth.Errorf(berth.Unavailable, "database %s does not answer: %w", w.db.where, err)
		case errors.Is(err, errCareless):
			careful = true
			continue
		case !errors.As(err, &lost):
			return nil, err
		case w.s != nil || tries == batchTries:
			return nil, lost.err
		}
		tries++
		w.db.log.Warn("database connection lost; reconnecting", "err", lost.err)
	}
}

// rollback undoes whatever transaction is open. A session on which that does not work is given up.
func (w *writer) rollback() {
	w.memory.clear()
	if w.s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), inquiry)
	defer cancel()
	_, err := w.s.exec(ctx, "ROLLBACK")
	// SQLite has no connection to lose, and fails here when an error has rolled back already.
	if err != nil && w.db.d.remote {
		w.s.close()
		w.s = nil
	}
}
