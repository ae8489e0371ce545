package envs

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncAll makes everything written to dir's file system durable.
func syncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
