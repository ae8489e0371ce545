package group

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/berthml/berth"
)

// signals are those that ask a launcher to end.
func signals() chan os.Signal {
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	return c
}

// process is a child under way.
type process struct {
	berth.Process
	cmd *exec.Cmd
}

// signal reaches everything in the child's process group.
func (p *process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, sig) }

// runLocal starts the processes as children. The first to fail ends the others; when the launcher
// is asked to end all are asked to, and whoever asked says when it is enough.
func runLocal(ctx context.Context, s *Spec, dir string) berth.Exit {
	runtime.LockOSThread()
	asked := signals()
	running := map[int]*process{}
	ends := make(chan ended)
	var first *ended
	fail := func(e ended) {
		if first == nil {
			first = &e
		}
	}
	for i, p := range s.Group.Processes {
		cmd, err := s.start(ctx, p, dir, i == 0)
		if err != nil {
			fmt.Fprintf(os.Stderr, "berth: process %d did not start: %v\n", p.Rank, err)
			fail(ended{Rank: p.Rank, Code: 126})
			break
		}
		running[p.Rank] = &process{p, cmd}
		log := Log(dir, p)
		if i == 0 && p.LogFile == "" {
			log = filepath.Join(dir, path.Base(berth.StdLog)) // where the launcher writes
		}
		go func() { ends <- wait(cmd, p.Rank, log) }() // ends with the child, which the loop below waits for
	}
	all := func(sig syscall.Signal) {
		for _, p := range running {
			p.signal(sig)
		}
	}
	var enough <-chan time.Time
	stopping := false
	if first != nil {
		stopping, enough = true, time.After(s.grace())
		all(syscall.SIGTERM)
	}
	for len(running) > 0 {
		select {
		case e := <-ends:
			delete(running, e.Rank)
			if e.ok() {
				continue
			}
			fail(e)
			if !stopping {
				stopping, enough = true, time.After(s.grace())
				all(syscall.SIGTERM)
			}
		case <-asked:
			if !stopping {
				stopping = true
				if !s.Told {
					all(syscall.SIGTERM)
				}
			}
		case <-enough:
			all(syscall.SIGKILL)
		}
	}
	if first != nil {
		return s.exit(*first)
	}
	return berth.Exit{}
}

// start starts one process. The first writes where the launcher does.
func (s *Spec) start(ctx context.Context, p berth.Process, dir string, first bool) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, Shell(), "-c", s.Command)
	cmd.Dir, cmd.SysProcAttr = s.Dir, attr()
	cmd.Env = append(os.Environ(), s.environ(p)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if !first {
		f, err := openLog(Log(dir, p))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		cmd.Stdout, cmd.Stderr = f, f
	}
	return cmd, cmd.Start()
}

func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	}
	return f, err
}

// wait says how a child ended; log is where its output went.
func wait(cmd *exec.Cmd, rank int, log string) ended {
	_ = cmd.Wait() // its state says how it ended; what was wrong with its output does not matter then
	if cmd.ProcessState == nil {
		return ended{Rank: rank, Code: 1}
	}
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return ended{Rank: rank, Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	}
	e := ended{Rank: rank, Code: cmd.ProcessState.ExitCode()}
	if !e.ok() {
		e.Line = LastError(log, e.Code)
	}
	return e
}
