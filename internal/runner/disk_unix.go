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
