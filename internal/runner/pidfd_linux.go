package runner

import (
	"context"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pidfdInfo is what the kernel says of the process of a pidfd.
type pidfdInfo struct {
	mask, cgroup uint64
	_            [11]uint32 // its ids, and whose they are
	exit         int32
}

const (
	getPidfdInfo = 0xc040ff0b // _IOWR(0xff, 11, 64 bytes)
	infoExit     = 1 << 3
)

// foreignEnd is how a process ended that is the child of neither this process nor its reaper,
// because those that were are gone. Until its new parent has reaped it that is in /proc, and
// afterwards the kernel says it to those who have held a pidfd, from Linux 6.15 on.
func foreignEnd(ctx context.Context, fd *os.File, pid int, startTime uint64) (ws syscall.WaitStatus, known bool) {
	if fd == nil { // it did not live any more when it was found
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if s, ok := readStat(pid); ok && s.startTime == startTime && s.state == 'Z' {
			return s.exit, true
		}
		ws, ended, err := pidfdExit(fd)
		if err != nil || ended {
			return ws, err == nil
		}
		timer := time.NewTimer(wait) // it is being reaped
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, false
		}
	}
}

// pidfdExit asks the kernel how the process of a pidfd ended; not yet while nobody has reaped it.
// The error is that of an older kernel.
func pidfdExit(fd *os.File) (ws syscall.WaitStatus, ended bool, err error) {
	conn, err := fd.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	info := pidfdInfo{mask: infoExit}
	var errno syscall.Errno
	if err := conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(unix.SYS_IOCTL, fd, getPidfdInfo, uintptr(unsafe.Pointer(&info)))
	}); err != nil {
		return 0, false, err
	}
	if errno != 0 {
		return 0, false, errno
	}
	return syscall.WaitStatus(info.exit), info.mask&infoExit != 0, nil
}
