package runner

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

func signalName(n int) string {
	if s := unix.SignalName(syscall.Signal(n)); s != "" {
		return s
	}
	return "signal " + itoa(n)
}

// process is a running command: a child of ours, or one that was adopted.
type process struct {
	pid   int
	born  uint64
	child bool
	fd    *os.File // pidfd, in the runtime's poller
}

// devNull is standard input of every command.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })

// start runs s in a session of its own. The process is not waited for by a thread: its pidfd sits in the poller.
func start(s *Spec) (*process, error) {
	null, err := devNull()
	if err != nil {
		return nil, err
	}
	pidfd := -1
	attr := &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	if s.cgroup != nil {
		s.cgroup.enter(s, attr)
	}
	log := uintptr(s.Log)
	pid, err := syscall.ForkExec(s.Path, s.Args, &syscall.ProcAttr{
		Dir: s.Dir, Env: s.Env, Files: []uintptr{null.Fd(), log, log}, Sys: attr,
	})
	if err != nil {
		return nil, err
	}
	p := &process{pid: pid, child: true}
	if pidfd < 0 { // a kernel older than 5.4
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			pidfd = -1
		}
	}
	if pidfd >= 0 {
		_ = syscall.SetNonblock(pidfd, true)
		p.fd = os.NewFile(uintptr(pidfd), "pidfd")
	}
	p.born, _ = born(pid)
	return p, nil
}

// adopt finds a process that an earlier runner started. It is nil when the process is gone.
func adopt(pid int, b uint64) *process {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	if now, ok := born(pid); !ok || now != b {
		unix.Close(fd)
		return nil
	}
	return &process{pid: pid, born: b, fd: os.NewFile(uintptr(fd), "pidfd")}
}

// wait blocks until the process has ended, without taking its status away: until reap its id stays its own.
func (p *process) wait(ctx context.Context) error {
	if p.fd == nil {
		return waitBlocking(p.pid)
	}
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.fd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = conn.Read(func(fd uintptr) bool {
		pfd := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(pfd, 0)
			if err == unix.EINTR {
				continue
			}
			return n > 0 || err != nil
		}
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// waitBlocking is wait for kernels without pidfds; it costs a thread.
func waitBlocking(pid int) error {
	for {
		var info [128]byte
		_, _, e := syscall.Syscall6(syscall.SYS_WAITID, unix.P_PID, uintptr(pid), uintptr(unsafe.Pointer(&info[0])),
			unix.WEXITED|unix.WNOWAIT, 0, 0)
		if e != syscall.EINTR {
			if e != 0 {
				return e
			}
			return nil
		}
	}
}

// reap takes the status of a child that has ended.
func (p *process) reap() (WaitStatus, error) {
	var ws syscall.WaitStatus
	var ru syscall.Rusage
	for {
		_, err := syscall.Wait4(p.pid, &ws, 0, &ru)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return WaitStatus{}, os.NewSyscallError("wait4", err)
		}
		w := StatusOf(ws)
		w.CPUSeconds = float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
		w.MaxRSS = ru.Maxrss << 10
		return w, nil
	}
}

// StatusOf translates what wait4 says.
func StatusOf(ws syscall.WaitStatus) WaitStatus {
	if ws.Signaled() {
		return WaitStatus{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return WaitStatus{Code: ws.ExitStatus()}
}

func (p *process) close() {
	if p.fd != nil {
		p.fd.Close()
	}
}
