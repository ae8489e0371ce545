package runner

import (
	"errors"
	"os"
	"syscall"
)

// OpenLog opens a file for appending, and makes it where it is not there. A command may be able to
// write where logs are, so a link is not followed, and a pipe not waited for. It goes without the
// runtime's poller, which has no use for it.
func OpenLog(path string) (int, error) {
	for {
		const flags = syscall.O_WRONLY | syscall.O_CREAT | syscall.O_APPEND | syscall.O_CLOEXEC
		fd, err := syscall.Open(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
		switch err {
		case nil:
			var st syscall.Stat_t
			if err = syscall.Fstat(fd, &st); err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFREG {
				err = errors.New("it is not a regular file")
			}
			if err == nil {
				err = syscall.SetNonblock(fd, false) // the command inherits it
			}
			if err != nil {
				syscall.Close(fd)
				return -1, &os.PathError{Op: "open", Path: path, Err: err}
			}
			return fd, nil
		case syscall.EINTR:
		default:
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func closeLog(fd int) { syscall.Close(fd) }
