package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/pty"
	"github.com/berthml/berth/internal/runner"
)

// Execs says whether commands can be run beside tasks.
const Execs = true

// Exec is [driver.Execer.Exec]: the command runs in the directory, with the variables and within
// the limits of the task's first process. It belongs to the task: when that is stopped, so is it.
func (d *Driver) Exec(ctx context.Context, h driver.Handle, c driver.Command) (int, error) {
	pid, err := d.pid(ctx, h)
	if err != nil {
		return 0, err
	}
	proc := "/proc/" + strconv.Itoa(pid)
	env, err := environ(ctx, proc)
	if err != nil {
		return 0, err
	}
	dir, err := os.Readlink(proc + "/cwd")
	if err != nil {
		return 0, berth.Errorf(berth.Conflict, "the task has ended")
	}
	args := c.Args
	if len(args) == 0 {
		args = []string{"/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash -i; else exec sh -i; fi"}
	}
	path, err := lookPath(args[0], env)
	if err != nil {
		return 0, berth.Errorf(berth.NotFound, "%w", err)
	}
	attr := &syscall.SysProcAttr{Setsid: true}
	path, args, done := runner.Join(pid, path, args, attr)
	defer done()
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Args, cmd.Env, cmd.Dir, cmd.SysProcAttr = args, env, dir, attr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	start := func() error { return runner.Beside(pid, cmd.Start) }
	if c.Terminal {
		return terminal(ctx, cmd, c, start)
	}
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	if c.Stdin == nil {
		if err := start(); err != nil {
			return exitCode(ctx, err)
		}
		return exitCode(ctx, cmd.Wait())
	}
	in, err := cmd.StdinPipe() // the end of the command does not wait for that of its input
	if err != nil {
		return 0, err
	}
	if err := start(); err != nil {
		return exitCode(ctx, err)
	}
	go func() { // ends with the caller's input, or with the next byte of it
		_, _ = io.Copy(in, c.Stdin)
		in.Close()
	}()
	return exitCode(ctx, cmd.Wait())
}

// environ reads a process's variables. One that is just becoming another program has none for a
// moment.
func environ(ctx context.Context, proc string) ([]string, error) {
	for range 1000 {
		b, err := os.ReadFile(proc + "/environ")
		if err != nil {
			return nil, berth.Errorf(berth.Conflict, "the task has ended")
		}
		if len(b) > 0 {
			return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
		}
		timer := time.NewTimer(time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
	return nil, berth.Errorf(berth.Conflict, "the task has ended")
}

// pid is the first process of a task.
func (d *Driver) pid(ctx context.Context, h driver.Handle) (int, error) {
	id, err := taskOf(h)
	if err != nil {
		return 0, err
	}
	all, err := d.client.Tasks(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		switch {
		case s.Task != id:
		case s.State != berth.TaskRunning:
			return 0, berth.Errorf(berth.Conflict, "task %s is not running: it is %s", id, s.State)
		case s.PID == 0:
			return 0, berth.Errorf(berth.Unsupported, "task %s runs in a container; use the container engine to enter it", id)
		default:
			return s.PID, nil
		}
	}
	return 0, berth.Errorf(berth.NotFound, "there is no task %s", id)
}

// lookPath finds a program on the PATH of env.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			for dir := range strings.SplitSeq(path, ":") {
				p := dir + "/" + name
				if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
					return p, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s is not on the task's PATH", name)
}

func exitCode(ctx context.Context, err error) (int, error) {
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case errors.As(err, &e):
		if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return e.ExitCode(), nil
	}
	return 0, berth.Errorf(berth.Invalid, "%w", err)
}

// terminal runs cmd, which start starts, on a terminal of its own and passes on what goes over it.
func terminal(ctx context.Context, cmd *exec.Cmd, c driver.Command, start func() error) (int, error) {
	ours, theirs, err := pty.Open()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	pty.Resize(ours, c.Size.Rows, c.Size.Columns)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr.Setctty = true
	err = start()
	theirs.Close()
	if err != nil {
		return exitCode(ctx, err)
	}
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case s, ok := <-c.Resize:
				if !ok {
					c.Resize = nil
					continue
				}
				pty.Resize(ours, s.Rows, s.Columns)
			case <-done:
				return
			}
		}
	})
	if c.Stdin != nil {
		// It ends with the caller's input or with the next byte of it, and holds nothing but that.
		go func() { _, _ = io.Copy(ours, c.Stdin) }()
	}
	out := c.Stdout
	if out == nil {
		out = io.Discard
	}
	group.Go(func() { _, _ = io.Copy(out, ours) }) // until the last process on the terminal is gone
	code, err := exitCode(ctx, cmd.Wait())
	close(done)
	group.Wait()
	return code, err
}
