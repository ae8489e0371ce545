// Package store keeps Berth's state: documents, tasks, events, leases and the index of blobs, in
// SQLite or PostgreSQL. The database is the truth and the queue: handlers write intent, loops read
// it and converge.
//
// Every change has a revision. Revisions grow in commit order, so that a Watch from a revision sees
// each event once.
package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
)

// Options are the choices of Open.
type Options struct {
	// NoSync gives up durability for speed: for tests only.
	NoSync bool
	// Rehearse runs every update twice and rolls back the first, as when a commit must be retried:
	// for tests only.
	Rehearse bool
	// Server is what this process is for others: a database that is a file has one server at a
	// time, in PostgreSQL several of one home can share one. Without it nobody is kept out, and the
	// database leads nobody: for tests and tools.
	Server Member
	// Wall is the wall clock; nil is the machine's. Another one is for tests only.
	Wall func() time.Time
	Log  *slog.Logger
}

// ErrClosed is returned by every call on a closed DB.
var ErrClosed error = &berth.Error{Code: berth.Unavailable, Msg: "the store is closed: the server is stopping"}

// DB is an open store. Its methods are safe for concurrent use.
type DB struct {
	d     *dialect
	where string // for messages: a path, or a URL without its password
	log   *slog.Logger

	pools     []*sql.DB
	readers   *sessions
	writer    writer
	feed      feed
	scopes    scopes
	server    string   // our name among servers of one database
	home      string   // what they share; empty where there can be no other server, or this is none
	file      *file    // nil where the database is not a file
	member    *member  // nil where there can be no other server, or this is none
	committed func()   // called by the writer after each commit; may be nil
	release   func()   // lets the next server have the database, once it is closed; may be nil
	stops     []func() // what Open started beyond the writer; run by Close in reverse

	rehearse bool // see Options
	clock    clock
	onJump   atomic.Pointer[func(*Tx, time.Duration) error]

	stats   stats
	trouble atomic.Pointer[error] // see Trouble
	closed  atomic.Bool
	close   sync.Once
}

// Open opens the store that url names, "sqlite:PATH" or "postgres://…", and migrates its schema. A
// database created by a newer Berth is refused.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return openSQLite(ctx, rest, o)
	case "postgres", "postgresql":
		return openPostgres(ctx, url, o)
	}
	return nil, berth.Errorf(berth.Invalid, "%q is not a supported database; use sqlite:PATH or postgres://…", url)
}

// start finishes Open once the pools are there: migrate, read the head, run the writer.
func (db *DB) start(ctx context.Context, write *sql.DB, read *sql.DB, readers int) error {
	db.pools = []*sql.DB{write}
	if read != write {
		db.pools = append(db.pools, read)
	}
	db.readers = newSessions(read, db.d, readers)
	s, err := newSession(ctx, write, db.d)
	if err != nil {
		return db.fault(err)
	}
	if err := db.migrate(ctx, s); err != nil {
		s.close()
		return err
	}
	var rev, pruned int64
	if _, err := s.row(ctx, []any{&rev, &pruned}, selectHead); err != nil {
		s.close()
		return db.fault(err)
	}
	db.feed.start(berth.Rev(rev))
	db.writer.init(db, s, write)
	go db.writer.loop()
	return nil
}

// Close finishes the updates already queued, ends all watches and closes the database. Later calls
// return ErrClosed.
func (db *DB) Close() error {
	db.close.Do(func() {
		db.writer.stop()
		for i := len(db.stops) - 1; i >= 0; i-- {
			db.stops[i]()
		}
		db.closed.Store(true)
		db.feed.close()
		db.readers.close()
		db.closePools()
		if db.release != nil {
			db.release()
		}
	})
	return nil
}

func (db *DB) closePools() {
	for _, p := range db.pools {
		p.Close()
	}
}

// Trouble returns the error of the last write, or nil. While it is set, what readers see may be out
// of date.
func (db *DB) Trouble() error {
	if err := db.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// Rev is the latest committed revision this server knows of.
func (db *DB) Rev() berth.Rev { return db.feed.rev() }

// View runs fn on a consistent snapshot. Views are cheap and do not wait for each other nor for
// updates. fn must not keep tx.
func (db *DB) View(ctx context.Context, fn func(*Tx) error) error {
	s, err := db.beginView(ctx)
	if err != nil {
		return err
	}
	tx := &Tx{db: db, s: s, ctx: db.viewContext(ctx)}
	ended := false
	defer func() {
		if !ended { // fn panicked
			_, err := s.exec(context.Background(), "ROLLBACK")
			db.readers.put(s, err != nil)
		}
	}()
	err = fn(tx)
	ended = true
	_, endErr := s.exec(tx.ctx, "COMMIT")
	db.readers.put(s, endErr != nil)
	if err == nil && endErr != nil {
		err = db.fault(endErr)
	}
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return ctx.Err()
	}
	return err
}

// viewContext is the context of a view's statements. SQLite's are local and bounded, and its driver
// starts a goroutine for each statement whose context can end: they run without.
func (db *DB) viewContext(ctx context.Context) context.Context {
	if db.d.remote {
		return ctx
	}
	return context.Background()
}

// beginView borrows a session with a transaction begun on it. Sessions whose connection died while
// idle are dropped.
func (db *DB) beginView(ctx context.Context) (*session, error) {
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := db.readers.get(ctx)
		if err != nil {
			return nil, db.fault(err)
		}
		if db.closed.Load() {
			db.readers.put(s, true)
			return nil, ErrClosed
		}
		_, err = s.exec(db.viewContext(ctx), db.d.beginRead)
		if err == nil {
			return s, nil
		}
		db.readers.put(s, true)
		if err := db.fault(err); berth.CodeOf(err) != berth.Unavailable || try > cap(db.readers.sem) {
			return nil, err
		}
	}
}

// fault gives an engine's error a code and words for the user. Errors that have a code, and ends of
// contexts, pass.
func (db *DB) fault(err error) error {
	var coded *berth.Error
	if err == nil || errors.As(err, &coded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return db.d.fault(db.where, err)
}
