package cache

import (
	"io/fs"
	"os"
	"strings"
	"syscall"

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

// identity is which file it is, and when it was last changed: its content, its times or its names.
func identity(info fs.FileInfo) (inode uint64, changed int64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino, st.Ctim.Nano()
	}
	return 0, info.ModTime().UnixNano()
}

// clone lets a file share the bytes of another one.
func clone(to, from *os.File) bool { return unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil }
