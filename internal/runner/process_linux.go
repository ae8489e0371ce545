package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/slack"
)

func signalName(n int) string {
	if s := unix.SignalName(syscall.Signal(n)); s != "" {
		return s
	}
	return "signal " + strconv.Itoa(n)
}

// process is a command that runs on this machine: a child of ours, or one that was adopted.
type process struct {
	t         *task
	pid       int
	startTime uint64
	child     bool
	fd        *os.File // pidfd, in the runtime's poller; nil when the kernel has none
	cgroup    *cgroup
	sampler   sampler
	patient   patient
}

// devNull is standard input of every command.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.OpenFile(os.DevNull, os.O_RDWR, 0) })

// startProcess starts the command in a session of its own. No thread waits for it: its pidfd sits
// in the poller.
func (t *task) startProcess(s *Spec) (running, error) {
	path, args, plain, err := t.program(s)
	if err != nil {
		return nil, err
	}
	before := clockTicks()
	pid, pidfd, err := fork(s, path, args)
	if err != nil && plain {
		// What cannot be executed, a script without an interpreter say, is the shell's to judge.
		path, args = viaShell(s.Command)
		pid, pidfd, err = fork(s, path, args)
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	p := &process{t: t, pid: pid, child: true, cgroup: s.cgroup}
	if pidfd >= 0 {
		_ = syscall.SetNonblock(pidfd, true)
		p.fd = os.NewFile(uintptr(pidfd), "pidfd")
	}
	p.startTime = startTimeSince(before, pid)
	return p, nil
}

func fork(s *Spec, path string, args []string) (pid, pidfd int, err error) {
	null, err := devNull()
	if err != nil {
		return 0, -1, err
	}
	pidfd = -1
	attr := &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	path, args = s.cgroup.enter(path, args, attr)
	files := []uintptr{null.Fd(), uintptr(s.log), uintptr(s.log)}
	if s.stdin != nil {
		files[0] = s.stdin.Fd()
	}
	if s.terminal {
		files[1], files[2], attr.Setctty = files[0], files[0], true
	}
	if s.env != nil {
		if hold := s.env.Hold(); hold != nil { // keeps the environment even when this process dies
			files = append(files, hold.Fd())
		}
	}
	files = append(files, s.holds...)
	start := func() {
		pid, err = slack.WithDefault(func() (int, error) {
			return syscall.ForkExec(path, args, &syscall.ProcAttr{Dir: s.Dir, Env: s.Env, Files: files, Sys: attr})
		})
	}
	if s.room != nil {
		s.room.do(start)
	} else {
		start()
	}
	if err == nil && pidfd < 0 { // a kernel older than 5.4
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			pidfd, err = -1, nil
		}
	}
	return pid, pidfd, err
}

// forkBeside starts a program of a task that is not its command.
func forkBeside(s *Spec, path string, args []string) error {
	pid, pidfd, err := fork(s, path, args)
	if err != nil {
		return err
	}
	if pidfd >= 0 {
		unix.Close(pidfd)
	}
	go reap(pid)
	return nil
}

// find finds the command an earlier runner started, or says how the task ends without it.
func (t *task) find(ctx context.Context) (running, *berth.Exit) {
	last := t.o.Last
	if last.Box != "" || last.PID == 0 && needsEnvironment(t.l.Environment) {
		if r, exit, ok := t.findContainer(ctx); ok {
			return r, exit
		}
	}
	p := &process{t: t, pid: last.PID, startTime: last.StartTime, cgroup: openCgroup(t.l, t.unique())}
	if last.Step == StepExec {
		// It is not known whether the process was started. If it was and runs still, it carries the
		// task's mark.
		if p.pid, p.startTime = findMarked(t.o.Dir); p.pid == 0 {
			return nil, lost("its runner was killed while it started the command, and the command's process is gone")
		}
	}
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return p, nil // gone: wait and ended will find that out
	}
	if now, ok := readStat(p.pid); !ok || now.startTime != p.startTime || !alive(now) {
		unix.Close(fd) // its id is somebody else's by now, or it went together with its host
		return p, nil
	}
	p.fd = os.NewFile(uintptr(fd), "pidfd")
	return p, nil
}

func (p *process) mark() Mark { return Mark{Step: StepStarted, PID: p.pid, StartTime: p.startTime} }

// wait does not take the status away: until close its id stays its own.
func (p *process) wait(_ context.Context, w *waker) (bool, error) {
	if p.fd == nil {
		if !p.child {
			return true, nil // an adopted process without a pidfd is gone
		}
		// A kernel older than 5.3. It costs a thread, which outlives an abandoned task.
		return p.patient.wait(w, func() error {
			_, _, _, err := Peek(unix.P_PID, p.pid)
			return err
		})
	}
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return true, err
	}
	if w.interrupt.Load() == nil {
		f := func() { _ = p.fd.SetReadDeadline(time.Unix(1, 0)) }
		w.interrupt.Store(&f)
	}
	for !w.pending() {
		err := conn.Read(func(fd uintptr) bool {
			pfd := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			for {
				n, err := unix.Poll(pfd[:], 0)
				if err != unix.EINTR {
					return n > 0 || err != nil
				}
			}
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return true, err
		}
		_ = p.fd.SetReadDeadline(time.Time{}) // whoever interrupts again has noted its event before
	}
	return false, nil
}

func (p *process) ended(ctx context.Context) (s WaitStatus, known bool) {
	if p.child {
		// Its id is its own until it is reaped, so the group can be swept without hitting a
		// stranger's.
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		_, ws, ru, err := Peek(unix.P_PID, p.pid)
		if known = err == nil; known {
			s = StatusOf(ws)
			s.CPUSeconds = float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
			s.MaxRSS = peakOf(ru)
		} else {
			p.t.o.Log.Error("learning how a command ended", "task", p.t.l.Task, "pid", p.pid, "err", err)
		}
	} else if p.t.o.Status != nil {
		if s, known = p.t.o.Status(ctx, p.pid, p.startTime); !known {
			var ws syscall.WaitStatus
			if ws, known = foreignEnd(ctx, p.fd, p.pid, p.startTime); known {
				s = StatusOf(ws)
			}
		}
	}
	s.OOM = p.cgroup.oomKilled()
	return s, known
}

// peakOf is the most memory a child had, 0 when the kernel does not tell. Between fork and exec a
// child lives in this process's memory, and the kernel counts that as its peak too; so only what is
// above our own is surely the child's.
func peakOf(ru syscall.Rusage) int64 {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil || ru.Maxrss <= own.Maxrss {
		return 0
	}
	return ru.Maxrss << 10
}

// close reaps a child whose end is kept. Any other is left to whoever inherits it.
func (p *process) close(over bool) {
	if p.child && over {
		for {
			if _, err := syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil); err != syscall.EINTR {
				break
			}
		}
	}
	if p.fd != nil {
		p.fd.Close()
	}
}

// here says whether the process is there, ended or not, so that its id means it. A child is until
// it is reaped.
func (p *process) here() bool {
	if p.child {
		return true
	}
	b, _, ok := StartTime(p.pid)
	return ok && b == p.startTime
}

// hangUp tells the command that its terminal has gone.
func (p *process) hangUp() {
	if p.here() {
		_ = syscall.Kill(-p.pid, syscall.SIGHUP)
	}
}

func (p *process) ask() {
	if p.t.grouped() { // the launcher asks each of its processes, once
		if p.here() {
			_ = syscall.Kill(p.pid, syscall.SIGTERM)
		}
		return
	}
	if p.here() {
		_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	}
	for _, pid := range p.strangers() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// kill ends every process of the task. A process may fork between being listed and being killed, so
// the list is read again until it is empty, a few times at most.
func (p *process) kill() {
	p.cgroup.kill()
	if p.here() {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
	for n, quiet := 0, false; n < 8; n++ {
		list := p.strangers()
		for _, pid := range list {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(list) == 0 && quiet {
			return
		}
		if quiet = len(list) == 0; quiet {
			time.Sleep(time.Millisecond) // one that is about to execute something carries no mark for a moment
		}
	}
}
