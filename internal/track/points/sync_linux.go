package points

import (
	"os"
	"path/filepath"
	"syscall"
)

// dataSync makes a file's bytes durable; its length is known already.
func dataSync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return err
		}
	}
}

// syncParent makes a file's name durable.
func syncParent(path string, noSync bool) error {
	if noSync {
		return nil
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
