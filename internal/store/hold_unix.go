//go:build unix

package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berthml/berth"
)

// hold takes the database file at path for the server named who, and refuses while another has it.
// The lock is on a file beside it: a descriptor of the database itself that is closed would take
// SQLite's own locks along. The kernel gives it back however the process ends.
func hold(path, who string) (release func(), err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // two names of one database are one database
	}
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "locking the database: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		name, _ := io.ReadAll(io.LimitReader(f, 1<<10)) // who it is does not matter for the answer
		f.Close()
		return nil, berth.Errorf(berth.Conflict, "database %s is used by %s: two servers would run every job twice; stop that one first, or give this one a database of its own",
			path, orElse(strings.TrimSpace(string(name)), "another server"))
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteString(who + "\n")
	}
	if err != nil {
		f.Close()
		return nil, berth.Errorf(berth.Unavailable, "locking the database: %w", err)
	}
	return func() { f.Close() }, nil
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
