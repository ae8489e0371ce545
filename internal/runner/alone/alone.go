//go:build unix

// Package alone runs one task in a process that a queueing system started, such as a batch job of
// Slurm. The process ends as the command did, once the server has been told.
package alone

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/fence"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data"
)

// LaunchFile is the file in the task's directory that has its launch. It is removed when it has
// been read.
const LaunchFile = "launch.json"

// lastReport is how long the process waits for the server to hear how the task ended. It holds what
// the queueing system gave it meanwhile.
const lastReport = 15 * time.Minute

// Main is the hidden command `_task --dir DIR [--home HOME]`. It returns the exit code of the
// process. HOME is the server's folder, which the task is kept from where this machine has it.
//
// SIGUSR1 asks the task to end within the grace of its launch, and SIGUSR2 ends it at once. SIGTERM
// is the queueing system's own: the task ends, and why it had to is for that system to say, so that
// the server is not told of the end from here.
func Main(ctx context.Context, args []string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	flags := flag.NewFlagSet("_task", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory of the task")
	home := flags.String("home", "", "the server's folder")
	if err := flags.Parse(args); err != nil || *dir == "" {
		log.Error("usage: _task --dir DIR")
		return 2
	}
	if err := hide(*home, *dir); err != nil {
		log.Error("the task can read the secrets of the server", "err", err)
	}
	exit, err := run(ctx, *dir, log)
	if rerr := cache.RemoveAll(*dir); rerr != nil {
		log.Warn("the directory of the task is left behind", "dir", *dir, "err", rerr)
	}
	if err != nil {
		log.Error("the task cannot be run", "err", err)
		return 1
	}
	return code(exit)
}

// hide keeps the task from the server's folder, where this machine has it and the kernel can. Then
// it does not return: the program is executed again because the fence holds for one thread only.
func hide(home, dir string) error {
	if home == "" {
		return nil
	}
	if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if why := fence.Missing(home); why != "" {
		return errors.New(why)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := fence.Hide(home, dir, filepath.Dir(exe)); err != nil {
		return err
	}
	return syscall.Exec(exe, []string{exe, "_task", "--dir", dir}, os.Environ())
}

// code is the exit code of a process whose task ended so.
func code(e berth.Exit) int {
	switch {
	case e.OK():
		return 0
	case e.Code > 0 && e.Code < 256:
		return e.Code
	}
	return 1
}

func run(ctx context.Context, dir string, log *slog.Logger) (berth.Exit, error) {
	l, err := readLaunch(filepath.Join(dir, LaunchFile))
	if err != nil {
		return berth.Exit{}, err
	}
	control := new(runner.Control)
	ended, ignore := heed(control)
	defer ignore()
	home, err := runner.NewHTTPHome(l.Home.URL, l.Home.CA)
	if err != nil {
		return berth.Exit{}, err
	}
	defer home.Close()
	told := make(chan struct{})
	reporter := runner.NewReporter(home, runner.ReporterOptions{
		Delivered: func(r berth.Report) {
			if r.State == berth.TaskDone {
				close(told)
			}
		},
		Stop: func(berth.TaskID) { control.Stop(runner.Stop{}) },
		Log:  log,
	})
	sending, stop := context.WithCancel(ctx)
	defer stop()
	go reporter.Run(sending)
	o, err := options(l, dir, log)
	if err != nil {
		return berth.Exit{}, err
	}
	o.Home, o.Control = home, control
	o.Report = func(r berth.Report) {
		if r.State != berth.TaskDone || !ended.Load() {
			reporter.Send(sending, r)
		}
	}
	exit, err := runner.Run(ctx, l, o)
	if err != nil || ended.Load() {
		return exit, err
	}
	select {
	case <-told:
	case <-time.After(lastReport):
		log.Error("the server could not be told how the task ended")
	}
	return exit, nil
}

// options is what the task works with, but for what reaches the server.
func options(l berth.Launch, dir string, log *slog.Logger) (runner.Options, error) {
	o := runner.Options{Dir: filepath.Join(dir, "task"), Log: log, Base: environ()}
	kept, err := nodeDir(os.TempDir(), os.Getuid())
	if err != nil {
		log.Warn("nothing is kept for later tasks", "err", err)
		kept = dir
	}
	if o.Envs, err = envs.Open(filepath.Join(kept, "envs"), envs.Options{Log: log, DockerHost: os.Getenv("DOCKER_HOST")}); err != nil {
		return o, err
	}
	if o.Cache, err = cache.Open(filepath.Join(kept, "cache"), cache.Options{Protect: os.Geteuid() != 0, Log: log}); err != nil {
		return o, err
	}
	if o.Data, err = data.New(data.Options{CA: l.Home.CA}); err != nil {
		return o, err
	}
	if o.Watch, err = filewatch.New(); err != nil {
		log.Warn("no file notices", "err", err)
		o.Watch = nil
	}
	return o, nil
}

// environ is what the command inherits: what it does on any machine, and what the queueing system
// tells it of its job and of the devices that are its own.
func environ() []string {
	out := runner.BaseEnviron(os.Environ())
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case strings.HasPrefix(name, "SLURM_"), name == "CUDA_VISIBLE_DEVICES", name == "ROCR_VISIBLE_DEVICES", name == "GPU_DEVICE_ORDINAL":
			out = append(out, v)
		}
	}
	return out
}

// readLaunch reads a launch and removes its file, which has secrets.
func readLaunch(path string) (l berth.Launch, err error) {
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = json.Unmarshal(b, &l)
	}
	return l, err
}

// nodeDir is a directory of the account's own below one that all accounts share, where what later
// tasks on this machine need is kept.
func nodeDir(shared string, uid int) (string, error) {
	dir := filepath.Join(shared, "berth-node-"+strconv.Itoa(uid))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != uid || info.Mode().Perm()&0o077 != 0 {
		return "", berth.Errorf(berth.Denied, "%s is open to other accounts, or is theirs", dir)
	}
	return dir, nil
}

// heed passes signals on to the task, until it is told to ignore them. ended is set when the
// queueing system has ended the task.
func heed(c *runner.Control) (ended *atomic.Bool, ignore func()) {
	ended = new(atomic.Bool)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	done := make(chan struct{})
	go func() {
		for asked := false; ; {
			select {
			case s := <-signals:
				var ask runner.Stop
				switch {
				case s == syscall.SIGUSR2:
					ask.Grace = time.Millisecond
				case s == syscall.SIGTERM:
					ended.Store(true)
				case asked: // its grace goes on
					continue
				}
				asked = true
				c.Stop(ask)
			case <-done:
				return
			}
		}
	}()
	return ended, func() {
		signal.Stop(signals)
		close(done)
	}
}
