package runner

import (
	"os"
	"syscall"
)

// openAppend opens a file without the runtime's poller, which has no use for it.
func openAppend(path string) (int, error) {
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
