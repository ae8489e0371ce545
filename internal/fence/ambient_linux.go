package fence

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// DropAmbient gives up the capabilities that programs started by this one would have, such as that
// to listen on a port below 1024, which a service manager gives to a server. The process itself
// keeps them.
func DropAmbient() error {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0)
	if errors.Is(errno, syscall.EINVAL) || errors.Is(errno, syscall.ENOTSUP) {
		return nil // a kernel without them; a program with cgo, which is for tests
	}
	if errno != 0 {
		return errno
	}
	return nil
}
