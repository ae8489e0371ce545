package cache

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// bootID names the machine's start.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// looker looks at files below a root, one folder after the other: to look from a folder that is
// open is several times faster than by a whole path.
type looker struct {
	root string
	dir  string // the one that is open, with its last slash
	fd   int
	open bool
}

// look is what stat says of a file.
func (l *looker) look(name string) (seen, error) {
	dir, base := path.Split(name)
	if !l.open || dir != l.dir {
		l.close()
		fd, err := unix.Open(filepath.Join(l.root, filepath.FromSlash(dir)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return seen{}, &fs.PathError{Op: "open", Path: dir, Err: err}
		}
		l.dir, l.fd, l.open = dir, fd, true
	}
	var st unix.Stat_t
	if err := unix.Fstatat(l.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return seen{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return seen{regular: st.Mode&unix.S_IFMT == unix.S_IFREG, size: st.Size, inode: st.Ino, changed: st.Ctim.Nano()}, nil
}

func (l *looker) close() {
	if l.open {
		_ = unix.Close(l.fd)
		l.open = false
	}
}

// clone lets a file share the bytes of another one.
func clone(to, from *os.File) bool { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil }
