package slack

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	patient  = 1_000_000 // nanoseconds
	ordinary = 50_000    // what the kernel gives a process that does not ask
	tried    = "_BERTH_PATIENT"
)

// Patient makes this program patient from its first thread on, and returns then. Threads have the
// slack of the one that started them and a program keeps it, so the program is executed once more.
// Where that cannot be done it runs as it is.
func Patient() {
	if os.Getenv(tried) != "" {
		_ = os.Unsetenv(tried)
		return
	}
	if s, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || s != ordinary {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, patient, 0, 0, 0) == nil {
		_ = syscall.Exec(exe, os.Args, append(os.Environ(), tried+"=1"))
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, ordinary, 0, 0, 0)
	}
}

// Ordinary calls start in such a way that a process started there has the slack of any other.
func Ordinary(start func() (int, error)) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, ordinary, 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // what this thread began with
	}
	return start()
}
