package runner

import (
	"os"
	"syscall"
)

// OpenLog opens a file for appending, and makes it where it is not there. It goes without the runtime's poller, which has no use
// for it.
func OpenLog(path string) (int, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_APPEND|syscall.O_CLOEXEC, 0o600)
		switch err {
		case nil:
			return fd, nil
		case syscall.EINTR:
		default:
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func closeLog(fd int) { syscall.Close(fd) }
