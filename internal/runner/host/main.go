package host

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors a worker inherits.
const (
	fdLife  = 3 // reads its end when the reaper is gone
	fdReady = 4 // takes a byte when the worker listens; with --ready only
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
		return spawn(ctx, *dir, argv)
	case "reaper":
		return reap(*dir, argv, *ready, log)
	case "worker":
		os.Exit(work(ctx, *dir, argv, *ready, log))
	}
	return fmt.Errorf("unknown role %q", *role)
}

// spawn starts a reaper that outlives this process, and waits until its worker listens.
func spawn(ctx context.Context, dir string, argv []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
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
	argv = append(slices.Clone(argv), "--role", upper, "--ready")
	// Descriptor 3 is unused by a reaper; it keeps descriptor 4 in its place.
	_, err = syscall.ForkExec(self(), argv, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{null.Fd(), out.Fd(), out.Fd(), null.Fd(), pw.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	pw.Close()
	if err != nil {
		return fmt.Errorf("starting the runner host: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = pr.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if n, _ := pr.Read(make([]byte, 1)); n == 1 {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The worker ended: another host has the directory, or something is wrong.
	c := NewClient(dir)
	defer c.Close()
	if _, err := c.Info(ctx); err != nil {
		return fmt.Errorf("the runner host ended at once, see %s: %w", filepath.Join(dir, "host.log"), err)
	}
	return nil
}

// work is the worker's process; it returns its exit code.
func work(ctx context.Context, dir string, argv []string, ready bool, log *slog.Logger) int {
	syscall.CloseOnExec(fdLife)
	ctx, quit := context.WithCancelCause(ctx)
	defer quit(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	go func() { // as long as the process lives
		<-signals
		quit(errQuit)
	}()
	if upper == "reaper" {
		_ = syscall.SetNonblock(fdLife, true)
		life := os.NewFile(fdLife, "life")
		go func() { // as long as the process lives
			_, _ = io.Copy(io.Discard, life)
			quit(errOrphan)
		}()
	}

	lock, err := acquire(ctx, dir)
	if err != nil {
		log.Info("the directory has a host already", "err", err)
		return exitQuit
	}
	defer lock.Close()
	w, err := openWorker(dir, log)
	if err != nil {
		log.Error("opening the host", "err", err)
		return exitFailed
	}
	l, err := listen(dir)
	if err != nil {
		log.Error("opening the host", "err", err)
		return exitFailed
	}
	if ready {
		f := os.NewFile(fdReady, "ready")
		_, _ = f.Write([]byte{'.'})
		f.Close()
	}
	switch err := w.run(ctx, l); {
	case errors.Is(err, errQuit):
		return exitQuit
	case errors.Is(err, errRestart):
		return exitRestart
	case errors.Is(err, errOrphan):
		log.Warn("the reaper is gone; taking its place")
		argv = append(slices.Clone(argv), "--role", "reaper")
		log.Error("taking the reaper's place", "err", syscall.Exec(self(), argv, os.Environ()))
	default:
		log.Error("the worker ends", "err", err)
	}
	return exitFailed
}

// acquire takes the directory's lock. A host that is just ending gets a moment to do so.
func acquire(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(3 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			f.Close()
			return nil, fmt.Errorf("locking: %w", err)
		}
		time.Sleep(wait)
	}
}

// listen opens the socket, which only the user may reach.
func listen(dir string) (net.Listener, error) {
	path := socketPath(dir)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	return l, err
}
