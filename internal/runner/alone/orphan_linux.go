package alone

import (
	"errors"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes this process the parent of what its tasks leave behind.
func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// childless says that no process is left of the tasks that have ended, and reaps those that have
// ended too.
func childless() bool {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			return true
		case err != nil || pid == 0:
			return false
		}
	}
}
