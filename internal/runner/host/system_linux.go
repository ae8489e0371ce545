package host

import (
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// upper is the role of a host's first process.
const upper = "reaper"

// self is this very program, even when its file was replaced or removed.
func self() string { return "/proc/self/exe" }

// quietChildren gives the signal of a child's end its default, which is nothing. The runtime's
// handler would do nothing too, but a thread is woken for it; ends of children are waited for in
// other ways here.
func quietChildren() {
	var act [4]uint64 // struct sigaction with handler SIG_DFL and no flags
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGCHLD), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
}

// ordinarySignals gives real-time signals their default that whoever started us had ignored, as
// make does with two of them: a command would inherit that. The runtime sees to the others.
func ordinarySignals() {
	const ignored = 1
	for sig := uintptr(32); sig <= 64; sig++ {
		var now, act [4]uint64
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if errno == 0 && now[0] == ignored {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
		}
	}
}

// bootID names the time since the machine was started.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// stampOf is when the directories last changed. For the uppermost that is the time of its content,
// because renaming it is a change too.
func stampOf(dir string) (stamp [3]syscall.Timespec, ok bool) {
	wd := dir + "/wd"
	for i, p := range [...]string{dir, wd, wd + "/outputs"} {
		var st syscall.Stat_t
		if syscall.Lstat(p, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			return stamp, false
		}
		stamp[i] = st.Ctim
		if i == 0 {
			stamp[i] = st.Mtim
		}
	}
	return stamp, true
}

// moveUnshared gives the blank file that fd has open another name, unless that name is taken, or
// somebody else has the file open or is about to: a lease for writing is given to the only one, and
// tells of others who come.
func moveUnshared(fd int, from, to string) bool {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false
	}
	ok := blank(fd) && unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE) == nil
	if ok {
		lease, err := unix.FcntlInt(uintptr(fd), unix.F_GETLEASE, 0)
		if ok = err == nil && lease == unix.F_WRLCK; !ok {
			_ = unix.Renameat2(unix.AT_FDCWD, to, unix.AT_FDCWD, from, unix.RENAME_NOREPLACE)
		}
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return ok && err == nil
}

// allocate takes n bytes of the disk for a file, from an offset on, and leaves its size as it is.
func allocate(f *os.File, off, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n)
}
