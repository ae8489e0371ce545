//go:build !linux

package runner

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/berthml/berth"
)

// On systems other than Linux a command is a child in a session of its own and no more: what leaves
// the session is not found, a command whose runner was killed is lost, and there are no limits and
// no samples.

func signalName(n int) string { return "signal " + strconv.Itoa(n) }

type process struct {
	t      *task
	pid    int
	gone   chan struct{} // closed when it has ended
	status syscall.WaitStatus
	usage  syscall.Rusage
	err    error

	patient patient
}

func (t *task) startProcess(s *Spec) (running, error) {
	path, args, plain, err := t.program(s)
	if err != nil {
		return nil, err
	}
	pid, err := fork(s, path, args)
	if err != nil && plain {
		path, args = viaShell(s.Command)
		pid, err = fork(s, path, args)
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	p := &process{t: t, pid: pid, gone: make(chan struct{})}
	go func() { // ends with the process, which outlives an abandoned task
		defer close(p.gone)
		for {
			if _, p.err = syscall.Wait4(p.pid, &p.status, 0, &p.usage); p.err != syscall.EINTR {
				return
			}
		}
	}()
	return p, nil
}

func fork(s *Spec, path string, args []string) (int, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := append([]uintptr{null.Fd(), uintptr(s.log), uintptr(s.log)}, s.holds...)
	if s.stdin != nil {
		files[0] = s.stdin.Fd()
	}
	return syscall.ForkExec(path, args, &syscall.ProcAttr{Dir: s.Dir, Env: s.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
}

// forkBeside starts a program of a task that is not its command.
func forkBeside(s *Spec, path string, args []string) error {
	pid, err := fork(s, path, args)
	if err == nil {
		go reap(pid)
	}
	return err
}

// hangUp tells the command that whoever typed has gone.
func (p *process) hangUp() { _ = syscall.Kill(-p.pid, syscall.SIGHUP) }

func (t *task) find(ctx context.Context) (running, *berth.Exit) {
	if r, exit, ok := t.findContainer(ctx); ok {
		return r, exit
	}
	return nil, lost("its runner was killed, and on this system nobody else can tell how its command ended")
}

func (p *process) mark() Mark { return Mark{Step: StepStarted, PID: p.pid} }

func (p *process) wait(ctx context.Context, w *waker) (bool, error) {
	return p.patient.wait(w, func() error {
		select {
		case <-p.gone:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (p *process) ended(context.Context) (WaitStatus, bool) {
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	s := StatusOf(p.status)
	s.CPUSeconds = float64(p.usage.Utime.Nano()+p.usage.Stime.Nano()) / 1e9
	s.MaxRSS = p.usage.Maxrss
	return s, p.err == nil
}

func (p *process) kill()                                { _ = syscall.Kill(-p.pid, syscall.SIGKILL) }
func (p *process) sample(time.Time) (berth.Usage, bool) { return berth.Usage{}, false }
func (p *process) close(bool)                           {}

func (p *process) ask() {
	if p.t.grouped() { // the launcher asks each of its processes, once
		_ = syscall.Kill(p.pid, syscall.SIGTERM)
		return
	}
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
}

// StatusOf translates what wait4 says.
func StatusOf(ws syscall.WaitStatus) WaitStatus {
	if ws.Signaled() {
		return WaitStatus{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	return WaitStatus{Code: ws.ExitStatus()}
}

// cgroup is Linux's.
type cgroup struct{}

func newCgroup(l *berth.Launch, _ string) (*cgroup, error) {
	if l.CPUs > 0 || l.Memory > 0 {
		return nil, berth.Errorf(berth.Unsupported, "this system cannot limit a command")
	}
	return nil, nil
}

func openCgroup(*berth.Launch, string) *cgroup { return nil }

func (c *cgroup) release() {}

func (c *cgroup) remove() {}
