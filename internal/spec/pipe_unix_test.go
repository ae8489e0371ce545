//go:build unix

package spec_test

import "syscall"

func makePipe(path string) error { return syscall.Mkfifo(path, 0o600) }
