//go:build !windows

package runner

import "golang.org/x/sys/unix"

// fullAt is how little room makes a disk full: writes of a few pages fail or are cut short.
const fullAt = 64 << 10

// DiskFull says whether the disk that holds a path has no room to speak of. It is on the way of
// every task.
func DiskFull(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint64(st.Bavail)*uint64(st.Bsize) < fullAt //nolint:unconvert // signed elsewhere
}
