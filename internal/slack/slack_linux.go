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

// Increase sets a larger timer slack for all threads of this program. Threads inherit the slack of
// the thread that started them, and it survives exec, so the program executes itself once more. If
// that fails, it continues with the default slack.
func Increase() {
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

// WithDefault calls start so that a process started by it has the default timer slack.
func WithDefault(start func() (int, error)) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, ordinary, 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // what this thread began with
	}
	return start()
}
