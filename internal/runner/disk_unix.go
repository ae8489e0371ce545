//go:build !windows

package runner

import "golang.org/x/sys/unix"

// freeDisk is how much room the disk that holds a path has for this account.
func freeDisk(path string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return 0, false
	}
	return int64(min(uint64(st.Bavail)*uint64(st.Bsize), 1<<62)), true //nolint:unconvert // signed elsewhere
}

// fullAt is how little room makes a disk full: writes of a few pages fail or are cut short.
const fullAt = 64 << 10

// DiskFull says whether the disk that holds a path has no room to speak of. It is on the way of
// every task.
func DiskFull(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint64(st.Bavail)*uint64(st.Bsize) < fullAt //nolint:unconvert // signed elsewhere
}

// A disk with less room than lowAt, or for fewer files than lowFiles, or than the lowShare-th part
// of what it can have where that is less, has none for another task: what it fetches and writes
// would not fit.
const (
	lowAt    = 64 << 20
	lowFiles = 1000
	lowShare = 100
)

// DiskLow says whether the disk that holds a path has too little room for another task. Where it
// had so already, twice as much is needed, so that it does not come and go.
func DiskLow(path string, already bool) bool {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return false
	}
	few := func(left, all, most uint64) bool {
		enough := min(most, all/lowShare)
		if already {
			enough *= 2
		}
		return left < enough
	}
	size, all := uint64(st.Bsize), st.Blocks
	room, files := uint64(st.Bavail), uint64(st.Ffree) //nolint:unconvert // signed elsewhere
	return few(room*size, all*size, lowAt) || few(files, st.Files, lowFiles)
}
