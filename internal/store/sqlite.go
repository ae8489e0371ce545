package store

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/berthml/berth"
)

var sqliteDialect = &dialect{
	name:      "sqlite",
	beginRead: "BEGIN",
	beginMove: "BEGIN IMMEDIATE",
	lockHead:  selectHead,
	saveHead:  "UPDATE head SET rev = ?, pruned = ? WHERE one = 1",
	hasTable:  "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?",
	anyTable:  "SELECT 1 FROM sqlite_schema WHERE type = 'table' LIMIT 1",
	fault:     sqliteFault,
}

// selectHead reads the head row.
const selectHead = "SELECT rev, pruned FROM head WHERE one = 1"

// checkpointPages is how long the log gets before its pages move into the database: 16 MiB. Longer makes
// checkpoints rarer, and a page that changes often is moved once for many changes.
const checkpointPages = "4000"

func openSQLite(ctx context.Context, path string, o Options) (*DB, error) {
	if path == "" {
		return nil, berth.Errorf(berth.Invalid, "sqlite: names no file: write sqlite:PATH")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, berth.Errorf(berth.Unavailable, "directory of the database: %w", err)
	}
	db := &DB{d: sqliteDialect, where: path, log: o.Log}
	synchronous := "FULL"
	if o.NoSync {
		synchronous = "OFF"
	}
	write, err := sqlitePool(path, "busy_timeout(10000)", "journal_mode(WAL)", "synchronous("+synchronous+")",
		"wal_autocheckpoint("+checkpointPages+")", "journal_size_limit(67108864)", "cache_size(-8000)", "temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	read, err := sqlitePool(path, "busy_timeout(10000)", "query_only(1)", "cache_size(-2000)", "temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	if err := db.start(ctx, write, read, max(4, 2*runtime.GOMAXPROCS(0))); err != nil {
		db.closePools()
		return nil, err
	}
	return db, nil
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
		return berth.Errorf(berth.Unavailable, "the disk that holds %s is full: free some space, nothing was lost: %w", where, err)
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return berth.Errorf(berth.Unavailable, "database %s is in use by another process: %w", where, err)
	case lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN, lib.SQLITE_READONLY, lib.SQLITE_PERM:
		return berth.Errorf(berth.Unavailable, "database %s cannot be read or written; look at the disk and at who owns the file: %w", where, err)
	case lib.SQLITE_CORRUPT:
		return berth.Errorf(berth.Internal, "database %s is damaged: restore it from a backup: %w", where, err)
	case lib.SQLITE_NOTADB:
		return berth.Errorf(berth.Invalid, "%s is not a database of Berth: name another file: %w", where, err)
	}
	return berth.Errorf(berth.Internal, "database %s: %w", where, err)
}
