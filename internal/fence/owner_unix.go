//go:build !windows

package fence

import (
	"io/fs"
	"os"
	"syscall"
)

// writable says whether this account, unless it is root, or everybody can write to a directory.
func writable(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || info.Mode().Perm()&0o022 != 0 || st.Uid != 0 && int(st.Uid) == os.Geteuid()
}
