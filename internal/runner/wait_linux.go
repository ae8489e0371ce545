package runner

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is what waitid fills in.
type siginfo struct {
	signo, errno, code int32
	_                  int32
	pid                int32
	uid                uint32
	status             int32
	_                  [128 - 28]byte
}

// Peek waits until a child has ended and leaves it unreaped: whoever inherits it can still learn
// how it ended. idType and id choose the child as waitid(2) has it.
func Peek(idType, id int) (pid int, ws syscall.WaitStatus, ru syscall.Rusage, err error) {
	for {
		var si siginfo
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, uintptr(idType), uintptr(id), uintptr(unsafe.Pointer(&si)),
			unix.WEXITED|unix.WNOWAIT, uintptr(unsafe.Pointer(&ru)), 0)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 {
			return 0, 0, ru, os.NewSyscallError("waitid", e)
		}
		const exited = 1 // CLD_EXITED; the others are CLD_KILLED and CLD_DUMPED
		ws = syscall.WaitStatus(si.status & 0x7f)
		if si.code == exited {
			ws = syscall.WaitStatus(si.status&0xff) << 8
		}
		return int(si.pid), ws, ru, nil
	}
}

// StatusOf translates what wait4 says.
func StatusOf(ws syscall.WaitStatus) WaitStatus {
	if ws.Signaled() {
		return WaitStatus{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return WaitStatus{Code: ws.ExitStatus()}
}
