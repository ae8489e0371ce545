package group

import (
	"os"
	"strconv"
	"syscall"
)

// attr puts a child into a process group of its own, which signals reach as a whole, and has it die
// with its parent. The parent is a thread: whoever starts children is locked to one that lasts.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// self is this very program for as long as this process lives, even when its file was replaced or
// removed.
func self() (string, error) { return "/proc/" + strconv.Itoa(os.Getpid()) + "/exe", nil }

// ownOutput is a file that writes where this process's standard output does.
func ownOutput() string { return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/1" }
