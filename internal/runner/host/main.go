package host

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/socket"
)

// Descriptors the processes of a host inherit.
const (
	fdLife  = 3 // of a worker: reads its end when the reaper is gone
	fdReady = 4 // takes a byte when the worker listens; with --ready only
	fdLock  = 5 // holds the directory's lock: it is free when, and only when, no process of the host is left
)

// Main is the program of a host. args are what follows the hidden command on the command line:
//
//	--dir DIR                  starts the host of DIR unless there is one, and returns when it listens
//	--dir DIR --role reaper    is the upper process
//	--dir DIR --role worker    is the lower one
func Main(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("_host", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory of the host")
	role := flags.String("role", "", "process to be")
	ready := flags.Bool("ready", false, "say on descriptor 4 when it listens")
	panicked := flags.Bool("panicked", false, "the worker before this one ended by itself")
	first := flags.Bool("first", false, "it is the first: it has to set up the fence")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("--dir is missing")
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	argv := append([]string{exe}, os.Args[1:len(os.Args)-len(args)]...)
	argv = append(argv, "--dir", *dir)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})).With("pid", os.Getpid())
	switch *role {
	case "":
		return Start(ctx, *dir, argv[:len(argv)-2], runner.Groups{})
	case "reaper":
		if *first {
			return begin(*dir, argv, *ready, log)
		}
		return reap(*dir, argv, *ready, log)
	case "worker":
		os.Exit(work(ctx, *dir, argv, *ready, *panicked, log))
	}
	return fmt.Errorf("unknown role %q", *role)
}

// Start starts the host of dir, which outlives this process, and waits until its worker listens.
// command is the program and its hidden command. The host and its tasks will be in the control
// groups g. Where there is a host, it waits for that one's worker.
func Start(ctx context.Context, dir string, command []string, g runner.Groups) error {
	// Not what is above it: a home that was moved away must not be made again.
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	lock, err := acquire(ctx, dir)
	if err != nil {
		return err
	}
	if lock == nil {
		return nil
	}
	defer lock.Close()
	out, err := os.OpenFile(filepath.Join(dir, "host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	pr, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	defer pr.Close()
	program, err := exec.LookPath(command[0])
	if err == nil {
		program, err = filepath.Abs(program) // it starts in another directory
	}
	if err != nil {
		return err
	}
	closeInherited()
	argv, attr, done := g.Detach(slices.Concat([]string{program}, command[1:], []string{"--dir", dir, "--role", upper, "--ready", "--first"}))
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.SysProcAttr = "/", attr
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, out, out
	cmd.ExtraFiles = []*os.File{null, pw, lock} // fdLife, fdReady, fdLock
	err = cmd.Run()
	done()
	pw.Close()
	if err != nil {
		return fmt.Errorf("%w, see %s", err, out.Name())
	}
	stop := context.AfterFunc(ctx, func() { _ = pr.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if n, _ := pr.Read(make([]byte, 1)); n == 1 {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the runner host ended at once, see %s", out.Name())
}

// closeInherited keeps descriptors that came with this process from going on to the host and its
// tasks: whoever waits for the end of a pipe that a server's shell left open would wait for the
// tasks.
func closeInherited() {
	list, _ := os.ReadDir("/dev/fd")
	for _, e := range list {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// acquire takes the directory's lock, or returns nil when a host has it and listens. A host whose
// worker is just being replaced gets a moment.
func acquire(ctx context.Context, dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := NewClient(dir)
	defer c.Close()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		f, err := tryLock(dir)
		if f != nil || err != nil {
			return f, err
		}
		if _, err := c.Info(ctx); err == nil {
			return nil, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("there is a runner host, but it does not listen, see %s", filepath.Join(dir, "host.log"))
		}
	}
}

// tryLock takes the directory's lock, nil when somebody has it.
func tryLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return nil, nil
	default:
		f.Close()
		return nil, fmt.Errorf("locking: %w", err)
	}
}

// Shutdown ends the host of dir, if there is one, and waits until it is gone. Its tasks run on; the
// next host finds them, but how those end that end meanwhile is lost.
func Shutdown(ctx context.Context, dir string) error {
	c := NewClient(dir)
	defer c.Close()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		f, err := tryLock(dir)
		if f != nil || errors.Is(err, os.ErrNotExist) {
			f.Close()
			return nil
		}
		if err != nil {
			return err
		}
		_ = c.Quit(ctx) // it may be between two workers
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return berth.Errorf(berth.Unavailable, "ending the runner host: %w", context.Cause(ctx))
		}
	}
}

// work is the worker's process; it returns its exit code.
func work(ctx context.Context, dir string, argv []string, ready, panicked bool, log *slog.Logger) int {
	for _, fd := range []int{fdLife, fdReady, fdLock} {
		syscall.CloseOnExec(fd) // tasks have no use for them
	}
	ctx, quit := context.WithCancelCause(context.WithoutCancel(ctx)) // the worker judges for itself what a signal means
	defer quit(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	shrug()
	if upper == "reaper" {
		_ = syscall.SetNonblock(fdLife, true)
		life := os.NewFile(fdLife, "life")
		go func() { // as long as the process lives
			_, _ = io.Copy(io.Discard, life)
			quit(errOrphan)
		}()
	}

	quietChildren()
	ordinarySignals()
	debug.SetGCPercent(400)                 // the heap is a few megabytes; collecting it is a good part of the cost of a short task
	if _, err := os.Stat(dir); err != nil { // making it would hide that the home was moved
		log.Error("opening the host", "err", err)
		return exitFailed
	}
	w, err := openWorker(dir, panicked, log)
	if err != nil {
		log.Error("opening the host", "err", err)
		return exitFailed
	}
	l, err := socket.Listen(socketPath(dir))
	if err != nil {
		log.Error("opening the host", "err", err)
		return exitFailed
	}
	if ready {
		f := os.NewFile(fdReady, "ready")
		_, _ = f.Write([]byte{'.'})
		f.Close()
	}
	switch err := w.run(ctx, l, signals); {
	case errors.Is(err, errQuit):
		return exitQuit
	case errors.Is(err, errRestart):
		return exitRestart
	case errors.Is(err, errOrphan):
		log.Warn("the reaper is gone; taking its place")
		argv = append(slices.Clone(argv), "--role", "reaper")
		_, _ = unix.FcntlInt(fdLock, unix.F_SETFD, 0) // the lock goes along
		log.Error("taking the reaper's place", "err", syscall.Exec(self(), argv, os.Environ()))
	default:
		log.Error("the worker ends", "err", err)
	}
	return exitFailed
}

// shrug makes the signals of terminals do nothing. They are caught, not ignored, because tasks
// would inherit that.
func shrug() { signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT) }

// saveProgram and loadProgram keep the command line of a newer build for the reaper to execute.
func saveProgram(dir string, command []string) error {
	b, err := json.Marshal(command)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func loadProgram(dir string) (command []string) {
	if b, err := os.ReadFile(filepath.Join(dir, "program")); err == nil {
		_ = json.Unmarshal(b, &command)
	}
	return command
}
