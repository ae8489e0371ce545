//go:build !windows

// Package socket makes Unix sockets that only their owner can reach.
package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berthml/berth"
)

// Listen opens a socket at path, whose directory it makes and whose earlier socket it replaces.
func Listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := Private(dir); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	old := syscall.Umask(0o177)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	syscall.Umask(old)
	return l, err
}

// Private says whether a directory is ours alone, so that a socket in it is what it seems.
func Private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || st.Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return berth.Errorf(berth.Denied, "%s can be changed by others: make it a directory of yours with mode 0700", dir)
	}
	return nil
}
