package peer

import (
	"os"
	"syscall"
)

// datasync waits until what was written is on the disk, as databases do.
func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
