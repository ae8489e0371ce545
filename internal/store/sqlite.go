package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/berthml/berth"
)

var sqliteDialect = &dialect{
	beginRead:  "BEGIN",
	beginWrite: "BEGIN IMMEDIATE",
	hasTable:   "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?",
	anyTable:   "SELECT 1 FROM sqlite_schema WHERE type = 'table' LIMIT 1",
	begin:      sqliteBegin,
	commit:     sqliteCommit,
	fault:      sqliteFault,
}

// selectHead reads the head row.
const selectHead = "SELECT rev, pruned FROM head WHERE one = 1"

func sqliteBegin(ctx context.Context, s *session) (head, error) {
	var h head
	if _, err := s.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return h, err
	}
	_, err := s.row(ctx, []any{(*int64)(&h.rev), (*int64)(&h.pruned)}, selectHead)
	return h, err
}

func sqliteCommit(ctx context.Context, s *session, h *head) error {
	if h != nil {
		if _, err := s.exec(ctx, "UPDATE head SET rev = ?, pruned = ? WHERE one = 1", int64(h.rev), int64(h.pruned)); err != nil {
			return err
		}
	}
	_, err := s.exec(ctx, "COMMIT")
	return err
}

const (
	// checkpointPages is how long the log gets before the writer itself moves it into the database.
	checkpointPages = 2000
	// logBytes of the log are written ahead of use, with zeros, because a sync of a file that grows
	// costs twice as much as one of a file that does not. The checkpointer keeps it from growing
	// longer as a rule.
	logBytes = 1000 * (4096 + 24)
)

func openSQLite(ctx context.Context, path string, o Options) (*DB, error) {
	if path == "" {
		return nil, berth.Errorf(berth.Invalid, "sqlite: has no file name; write sqlite:PATH")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, berth.Errorf(berth.Unavailable, "directory of the database: %w", err)
	}
	// For its owner only; the files beside it get the same mode.
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		f.Close()
	}
	release := func() {}
	if o.Server.Who != "" { // before anything is written
		if release, err = hold(path, o.Server.Who); err != nil {
			return nil, err
		}
	}
	db, err := openFile(ctx, path, o)
	if err != nil {
		release()
		return nil, err
	}
	db.release = release
	return db, nil
}

// openFile is openSQLite for a file that is there and nobody else's.
func openFile(ctx context.Context, path string, o Options) (*DB, error) {
	db := &DB{d: sqliteDialect, where: path, log: o.Log, rehearse: o.Rehearse}
	db.clock.start(o.Wall)
	synchronous := "FULL"
	if o.NoSync {
		synchronous = "OFF"
	}
	write, err := sqlitePool(path, "busy_timeout(10000)", "journal_mode(WAL)", "synchronous("+synchronous+")",
		fmt.Sprintf("wal_autocheckpoint(%d)", checkpointPages), "journal_size_limit(67108864)", "cache_size(-8000)", "temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	read, err := sqlitePool(path, "busy_timeout(10000)", "query_only(1)", "cache_size(-2000)", "temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	if err := db.start(ctx, write, read, min(max(4, 2*runtime.GOMAXPROCS(0)), 16)); err != nil {
		db.closePools()
		return nil, err
	}
	if db.file, err = openedFile(path); err != nil {
		db.Close()
		return nil, err
	}
	c, err := startCheckpointer(ctx, write, db.d)
	if err != nil {
		db.Close()
		return nil, db.fault(err)
	}
	db.committed = c.count
	db.stops = append(db.stops, c.stop)
	if !o.NoSync {
		if err := db.fillLog(ctx); err != nil {
			o.Log.Warn("write-ahead log not preallocated; the first writes are slower", "err", err)
		}
	}
	return db, nil
}

// fillLog makes the log as long as it is going to be. SQLite reads a log up to the first frame that
// does not carry its marks, so zeros after the end mean nothing. The update keeps other writers
// from the end meanwhile.
func (db *DB) fillLog(ctx context.Context) error {
	return db.Update(ctx, func(*Tx) error {
		f, err := os.OpenFile(db.where+"-wal", os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || info.Size() >= logBytes {
			return err
		}
		if _, err := f.Write(make([]byte, logBytes-info.Size())); err != nil {
			return err
		}
		return f.Sync()
	})
}

// sqlitePool makes a pool of connections to the file at path that run the pragmas first.
func sqlitePool(path string, pragmas ...string) (*sql.DB, error) {
	u := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{"_pragma": pragmas}.Encode()}
	c, err := sqlite.NewConnector(u.String())
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// sqliteFault gives an error of SQLite its words.
func sqliteFault(where string, err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return berth.Errorf(berth.Internal, "database %s: %w", where, err)
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_FULL:
		return berth.Errorf(berth.Unavailable, "the disk that holds %s is full; free some space, nothing was lost: %w", where, err)
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return berth.Errorf(berth.Unavailable, "database %s is in use by another process: %w", where, err)
	case lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN, lib.SQLITE_READONLY, lib.SQLITE_PERM:
		return berth.Errorf(berth.Unavailable, "database %s cannot be read or written; check the disk and the owner of the file: %w", where, err)
	case lib.SQLITE_CORRUPT:
		return berth.Errorf(berth.Internal, "database %s is damaged; restore it from a backup: %w", where, err)
	case lib.SQLITE_NOTADB:
		return berth.Errorf(berth.Invalid, "%s is not a Berth database; use another file: %w", where, err)
	}
	return berth.Errorf(berth.Internal, "database %s: %w", where, err)
}
