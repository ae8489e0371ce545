//go:build unix

package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berthml/berth"
)

// openFlags keep an open from waiting for the other end of a pipe, and from following a link.
const openFlags = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// lockFile takes a file for this process; the kernel gives it back however the process ends.
func lockFile(path, what string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close() // nothing was written
		return nil, berth.Errorf(berth.Conflict, "another %s is running here (%s is locked); wait until it has ended", what, path)
	}
	return f, nil
}

// waitLock takes a file for this process, after others.
func waitLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// abandoned says whether the process that works in a folder of scratch is gone.
func abandoned(dir string) bool {
	f, err := lockFile(filepath.Join(dir, "lock"), "backup")
	if err != nil {
		return berth.CodeOf(err) != berth.Conflict
	}
	f.Close() // nobody else takes it
	return true
}

// private says whether only this user can read what was looked at.
func private(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}
