package drivertest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts a disk of so many bytes at a directory for the length of the test, or skips it.
// fill takes all of its room, and free gives that back.
func SmallDisk(t *testing.T, dir, size string) (fill, free func()) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Skip("no tmpfs can be mounted here:", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	path := filepath.Join(dir, "filler")
	fill = func() {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for b := make([]byte, 64<<10); len(b) > 0; {
			if _, err := f.Write(b); err != nil {
				b = b[:len(b)/2]
			}
		}
	}
	free = func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	return fill, free
}
