//go:build unix

package backup

import (
	"os"
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
