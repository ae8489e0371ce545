package blob

import (
	"os"

	"golang.org/x/sys/unix"
)

// writebackStep is how much of a large upload may wait in memory for the disk: the sync at its end
// is then short.
const writebackStep = 16 << 20

// writeback starts writing a range of f to the disk without waiting. It is a hint: errors show at
// the sync.
func writeback(f *os.File, off, n int64) {
	unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE) //nolint:errcheck // a hint
}

// clone makes dst share src's bytes where the file system can do that; writes to either are
// invisible in the other.
func clone(dst, src *os.File) bool {
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
}

// free is the room left on the disk of path, -1 when it cannot be told.
func free(path string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return -1
	}
	return int64(st.Bavail) * st.Bsize
}

// openFlags keep an open from hanging on a pipe that somebody put in a log's place.
const openFlags = unix.O_NONBLOCK

// few is how many files are synced one by one: the sync of a whole file system also writes what
// others have left to write.
const few = 16

// syncMany makes the bytes of files in dir durable.
func syncMany(dir string, temps map[string]*temp) error {
	if len(temps) <= few {
		for _, t := range temps {
			if err := t.Sync(); err != nil {
				return err
			}
		}
		return nil
	}
	return syncFS(dir)
}

// syncDirs makes the names in directories below root durable.
func syncDirs(root string, dirs map[string]bool) error {
	if len(dirs) > few {
		return syncFS(root)
	}
	for d := range dirs {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	return nil
}

func syncFS(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
