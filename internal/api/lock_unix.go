//go:build unix

package api

import (
	"errors"
	"os"
	"syscall"
)

// lockFile keeps a file from everybody else who asks, in this process or another.
func lockFile(f *os.File) (unlock func(), err error) {
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return func() { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }, err // it ends with the file at the latest
}
