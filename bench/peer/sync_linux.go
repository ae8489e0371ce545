package peer

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// datasync waits until what was written is on the disk, as databases do.
func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// Settle waits until everything that was written to the file system of dir is on its disk, so that
// whoever syncs next does not pay for what was written before.
func Settle(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
