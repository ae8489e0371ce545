package host

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth/internal/idle"
	"github.com/berthml/berth/internal/runner"
)

// reaper is the upper process. It holds nothing but its children, so it can be replaced by
// executing itself again.
type reaper struct {
	dir    string
	argv   []string // of this program up to the role
	log    *slog.Logger
	reaped *reaped
	ready  *os.File // handed to the first worker, which says there that it listens
	life   *os.File // held open: the worker sees its end when this process dies
	worker int
	// panicked says that the last worker ended by itself: it was not killed, nor told to.
	panicked bool
}

// reap is the reaper's process.
func reap(dir string, argv []string, ready bool, log *slog.Logger) error {
	r := &reaper{dir: dir, argv: argv, log: log}
	if ready {
		syscall.CloseOnExec(fdReady)
		r.ready = os.NewFile(fdReady, "ready")
	}
	return r.run()
}

// run keeps a worker alive until one quits.
func (r *reaper) run() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the parent of orphans: %w", err)
	}
	r.reaped = &reaped{path: filepath.Join(r.dir, "reaped")}
	if err := r.reaped.trim(); err != nil && !os.IsNotExist(err) {
		r.log.Warn("trimming the file of exit statuses", "err", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	shrug()
	var wait time.Duration
	for {
		began := time.Now()
		if err := r.start(); err != nil {
			r.log.Error("starting the worker", "err", err)
		} else {
			idle.Watch() // from here on it waits
			status := r.attend(signals)
			switch {
			case status.Exited() && status.ExitStatus() == exitQuit:
				return nil
			case status.Exited() && status.ExitStatus() == exitRestart:
				return r.again()
			}
			r.log.Warn("the worker died", "status", status)
			r.panicked = panicked(status)
		}
		if _, err := os.Stat(r.dir); os.IsNotExist(err) {
			return fmt.Errorf("the directory is gone: %w", err)
		}
		if time.Since(began) > 10*time.Second {
			wait = 0
		}
		time.Sleep(wait)
		wait = min(2*wait+50*time.Millisecond, 5*time.Second)
	}
}

// start starts a worker.
func (r *reaper) start() error {
	pr, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pr.Close()
	if r.life != nil {
		r.life.Close()
	}
	r.life = pw
	argv := append(slices.Clone(r.argv), "--role", "worker")
	if r.panicked {
		argv = append(argv, "--panicked")
	}
	files := []uintptr{0, 1, 2, pr.Fd(), 0, fdLock}
	if r.ready != nil {
		argv = append(argv, "--ready")
		files[fdReady] = r.ready.Fd()
		defer func() {
			r.ready.Close()
			r.ready = nil
		}()
	}
	r.worker, err = syscall.ForkExec(self(), argv, &syscall.ProcAttr{Env: os.Environ(), Files: files})
	return err
}

// panicked says whether a process ended as a panic, or a signal of its own making, ends it.
func panicked(s syscall.WaitStatus) bool {
	const exitPanic = 2 // of Go's runtime
	return s.Exited() && s.ExitStatus() == exitPanic || s.Signaled() && s.Signal() != syscall.SIGKILL && s.Signal() != syscall.SIGTERM
}

// attend reaps until the worker has died, and says how it did. Inherited processes are noted before
// they are reaped.
func (r *reaper) attend(signals <-chan os.Signal) syscall.WaitStatus {
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-signals:
				_ = syscall.Kill(r.worker, syscall.SIGTERM)
			case <-over:
				return
			}
		}
	}()
	for {
		pid, ws, _, err := runner.Peek(unix.P_ALL, 0)
		if err != nil {
			r.log.Error("waiting", "err", err)
			time.Sleep(time.Second)
			continue
		}
		if pid != r.worker {
			if startTime, leader, ok := runner.LeaderStartTime(pid); ok && leader {
				if err := r.reaped.note(pid, startTime, ws); err != nil {
					r.log.Error("an exit status is lost", "pid", pid, "err", err)
				}
			}
		}
		var real syscall.WaitStatus
		_, _ = syscall.Wait4(pid, &real, 0, nil)
		if pid == r.worker {
			return real
		}
	}
}

// again executes the program of DIR/program in place of this one, keeping its children, or this one
// if that fails.
func (r *reaper) again() error {
	role := []string{"--dir", r.dir, "--role", "reaper"}
	if command := loadProgram(r.dir); len(command) > 0 {
		argv := append(command, role...)
		r.log.Error("executing another build", "argv", argv, "err", syscall.Exec(argv[0], argv, os.Environ()))
	}
	argv := append(slices.Clone(r.argv), role[2:]...)
	return fmt.Errorf("executing itself: %w", syscall.Exec(self(), argv, os.Environ()))
}
