//go:build !linux

package group

import (
	"os"
	"syscall"
)

// attr puts a child into a process group of its own, which signals reach as a whole.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// self is this program.
func self() (string, error) { return os.Executable() }

// ownOutput is a file that writes where this process's standard output does: there is none that
// others could open, and mpirun takes the output along its own way.
func ownOutput() string { return "/dev/stdout" }
