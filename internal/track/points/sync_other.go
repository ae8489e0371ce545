//go:build !linux

package points

import (
	"os"
	"path/filepath"
	"runtime"
)

// dataSync makes a file's bytes durable.
func dataSync(f *os.File) error { return f.Sync() }

// syncParent makes a file's name durable, where a directory can be synced.
func syncParent(path string, noSync bool) error {
	if noSync || runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
