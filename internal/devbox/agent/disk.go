//go:build !windows

package agent

import (
	"io/fs"
	"path/filepath"
	"syscall"
)

// diskUse is how many bytes the files below dir take, each once however many names it has.
func diskUse(dir string) (sum int64) {
	type id struct{ dev, ino uint64 }
	seen := map[id]bool{}
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone meanwhile, or not ours to read
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if st.Nlink > 1 && !e.IsDir() {
			k := id{uint64(st.Dev), st.Ino} //nolint:unconvert // another type on other systems
			if seen[k] {
				return nil
			}
			seen[k] = true
		}
		sum += st.Blocks * 512
		return nil
	})
	return sum
}

// lowDisk is how much must be free for everything to be kept that should be.
const lowDisk = 64 << 20

// diskFree is how many bytes can still be written where dir is, -1 when that is not known.
func diskFree(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // other types on other systems
}
