package fence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What may not be done but where it is allowed: all that reads, changes or replaces a file.
const (
	ofFiles = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	ofDirs  = unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
)

// leastVersion is the first that lets files be moved between directories.
const leastVersion = 2

func unsupported() string {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno != 0:
		return "the kernel has no Landlock: " + errno.Error()
	case v < leastVersion:
		return fmt.Sprintf("the kernel's Landlock is of version %d; it takes %d (Linux 5.19)", v, leastVersion)
	}
	return ""
}

// Hide keeps this thread, and what it executes, from everything in home but what runner hosts work
// in, and more. The caller executes a program in its place at once: other threads of this one are
// not kept from anything.
func Hide(home string, more ...string) error {
	runtime.LockOSThread()
	home, err := filepath.EvalSymlinks(home)
	if err != nil {
		return err
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: ofFiles | ofDirs}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	rules := int(fd)
	defer unix.Close(rules)
	for _, p := range open {
		more = append(more, filepath.Join(home, filepath.FromSlash(p)))
	}
	for _, p := range more { // what is to be allowed has to be there
		if err := os.MkdirAll(p, 0o700); err != nil {
			return err
		}
		if err := allow(rules, p); err != nil {
			return err
		}
	}
	dir := "/"
	for part := range strings.SplitSeq(strings.Trim(home, "/"), "/") {
		list, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range list {
			if e.Name() == part {
				continue
			}
			if err := allow(rules, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		dir = filepath.Join(dir, part)
	}
	if os.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no_new_privs: %w", err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// allow lets everything below path be used.
func allow(rules int, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil // gone meanwhile, or out of this account's reach
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil // where it leads has a name of its own; that may be the home
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: ofFiles, Parent_fd: int32(fd)}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		rule.Allowed_access |= ofDirs
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %s: %w", path, errno)
	}
	return nil
}
