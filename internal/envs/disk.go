package envs

import (
	"io/fs"
	"path/filepath"
	"syscall"
)

// diskUse is what dir takes on disk, files with several names in it counted once.
func diskUse(dir string) int64 {
	seen := map[uint64]bool{}
	return use(dir, func(st *syscall.Stat_t) bool {
		if st.Nlink > 1 {
			if seen[st.Ino] {
				return false
			}
			seen[st.Ino] = true
		}
		return true
	})
}

// unlinkedUse is what the files of dir take that have no other name: the ones no environment
// shares.
func unlinkedUse(dir string) int64 {
	return use(dir, func(st *syscall.Stat_t) bool { return st.Nlink == 1 })
}

// use adds up the files below dir that count.
func use(dir string, counts func(*syscall.Stat_t) bool) int64 {
	var total int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it went meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && (d.IsDir() || counts(st)) {
			total += st.Blocks * 512
		}
		return nil
	})
	return total
}
