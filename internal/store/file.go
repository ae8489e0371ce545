package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/berthml/berth"
)

// fileLook is how often a server looks whether the file of its database is still the one it opened.
const fileLook = 2 * time.Second

// A file is the file of an SQLite database as it was when it was opened.
type file struct {
	path string
	info fs.FileInfo
}

func openedFile(path string) (*file, error) {
	info, err := os.Stat(path)
	return &file{path, info}, err
}

// check is an error when the file is not at its path any more, or another is: what is written goes
// nowhere then.
func (f *file) check() error {
	now, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return berth.Errorf(berth.Unavailable, "database %s is gone: it was moved or removed under the running server; stop the server, put the file back, or start the server where it is now", f.path)
	case err != nil:
		return berth.Errorf(berth.Unavailable, "checking database %s: %w", f.path, err)
	case !os.SameFile(now, f.info):
		return berth.Errorf(berth.Unavailable, "database %s was replaced while the server was running; stop the server before restoring a copy, then start it again", f.path)
	}
	return nil
}

// guardFile looks after the file until ctx ends. The error says that it is not the same any more.
func (db *DB) guardFile(ctx context.Context) error {
	tick := time.NewTicker(fileLook)
	defer tick.Stop()
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := db.file.check(); err != nil {
			return err
		}
		// One that was written over in place is the same file. It has the time of that, and so it
		// has after the log was moved into it.
		info, err := os.Stat(db.file.path)
		if err != nil || info.ModTime().Equal(looked) {
			continue
		}
		looked = info.ModTime()
		if err := db.backwards(ctx); err != nil {
			return err
		}
	}
}

// backwards is an error when the database, read afresh, is older than what this server knows of it.
func (db *DB) backwards(ctx context.Context) error {
	known := db.feed.rev()
	pool, err := sqlitePool(db.file.path, "busy_timeout(10000)", "query_only(1)")
	if err != nil {
		return err
	}
	defer pool.Close()
	var rev, pruned int64
	if err := pool.QueryRowContext(ctx, selectHead).Scan(&rev, &pruned); err != nil {
		if ctx.Err() == nil {
			db.log.Warn("database not reopened", "err", err)
		}
		return nil
	}
	if berth.Rev(rev) < known {
		return berth.Errorf(berth.Unavailable, "database %s went back from revision %d to %d: an older copy was restored while the server was running; stop the server before restoring a copy, then start it again", db.where, known, rev)
	}
	return nil
}

// Check returns why the database cannot be used now, nil if it can. After an error it tries a
// write.
func (db *DB) Check(ctx context.Context) error {
	if db.Trouble() != nil {
		return db.Update(ctx, func(tx *Tx) error { return tx.SetMeta("checked", tx.Now().Format(time.RFC3339)) })
	}
	if db.file != nil {
		if err := db.file.check(); err != nil {
			return err
		}
	}
	return db.View(ctx, func(tx *Tx) error {
		_, err := tx.Rev()
		return err
	})
}
