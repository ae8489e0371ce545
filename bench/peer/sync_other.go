//go:build !linux

package peer

import "os"

func datasync(f *os.File) error { return f.Sync() }
