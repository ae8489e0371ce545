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
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data"
)

// LaunchFile is the file in the task's directory that has its launch. It is removed when it has
// been read.
const LaunchFile = "launch.json"

// startTime is how long a task is at its start: then memory counts for more than the time that
// collecting garbage takes.
const startTime = 3 * time.Second

// lastReport is how long the process waits for the server to hear how the task ended. It holds what
// the queueing system gave it meanwhile.
const lastReport = 15 * time.Minute

// hurriedReport is how long it waits when it was told to end at once.
const hurriedReport = 5 * time.Second

// sweepTime is how long processes that were killed are waited for.
const sweepTime = 2 * time.Second

// Main is the hidden command `_task --dir DIR [--container|--lead|--member]`, or `_task --script
// FILE [--dir DIR] [--index N]`. It returns the exit code of the process: [berth.ExitRunner] when
// the task could not be run.
//
// SIGUSR1 asks the task to end within the grace of its launch, and SIGUSR2 ends it at once. SIGTERM
// is the queueing system's own: the task ends, and why it had to is for that system to say, so that
// the server is not told of the end from here.
func Main(ctx context.Context, args []string) int {
	// Most tasks begin, and short ones end, before a collection would pay.
	debug.SetGCPercent(400)
	time.AfterFunc(startTime, func() { debug.SetGCPercent(100) })
	log, origin := slog.New(slog.NewTextHandler(os.Stderr, nil)), runner.NewOrigin()
	flags := flag.NewFlagSet("_task", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory of the task")
	container := flags.Bool("container", false, "the environment is that of the command's own image, and so the command's")
	leads := flags.Bool("lead", false, "start the tasks of a job of several nodes, see lead")
	joins := flags.Bool("member", false, "the launch comes from the leader, see member")
	script := flags.String("script", "", "file that the launch is in, see berth.ReadLaunch; a directory is made where none is given")
	index := flags.Int("index", 0, "which of the launches in the script it is")
	if err := flags.Parse(args); err != nil || *dir == "" && *script == "" {
		log.Error("usage: _task --dir DIR, or _task --script FILE")
		return 2
	}
	if *dir == "" {
		made, err := os.MkdirTemp("", "berth-task.")
		if err != nil {
			log.Error("there is no directory for the task", "err", err)
			return berth.ExitNoRoom
		}
		*dir = made
	}
	var m *member
	var l berth.Launch
	var err error
	switch {
	case *leads:
		defer cache.RemoveAll(*dir) //nolint:errcheck // there is nobody to tell
		return lead(ctx, *dir, log)
	case *joins:
		m, l, err = newMember()
	case *script != "":
		var text []byte
		if text, err = os.ReadFile(*script); err == nil {
			l, err = berth.ReadLaunch(text, *index)
		}
	default:
		l, err = readLaunch(filepath.Join(*dir, LaunchFile))
	}
	if err == nil {
		l, err = throughTunnel(ctx, l, filepath.Join(*dir, TunnelFile))
	}
	var exit berth.Exit
	told := false
	if err == nil {
		exit, told, err = run(ctx, l, m, *dir, *container, log)
	}
	sweep(*dir, origin)
	if rerr := cache.RemoveAll(*dir); rerr != nil {
		log.Warn("the directory of the task is left behind", "dir", *dir, "err", rerr)
	}
	end := code(exit)
	if err != nil {
		log.Error("the task cannot be run", "err", err)
		end = berth.ExitRunner
	}
	if m == nil {
		return end
	}
	m.done(end, told)
	return 0 // the leader knows
}

// sweep kills the processes that the command left in sessions of their own: not every queueing
// system finds them. One may fork between being listed and being killed, so the list is read again
// until all are gone, for a while at most.
func sweep(dir string, origin runner.Origin) {
	for end := time.Now().Add(sweepTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		left := origin.Belonging(dir)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
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

// run runs a task, of a gang where m is set. known says that the server was told how it ended, or
// is told by the queueing system.
func run(ctx context.Context, l berth.Launch, m *member, dir string, container bool, log *slog.Logger) (exit berth.Exit, known bool, err error) {
	control := new(runner.Control)
	asked := watchSignals(control)
	defer asked.ignore()
	if m != nil {
		go m.listen(asked)
	}
	home, err := runner.NewHTTPHome(l.Home.URL, l.Home.CA)
	if err != nil {
		return exit, false, err
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
		return exit, false, err
	}
	o.Home, o.Control = home, control
	if container {
		o.Base, l.ShmSize = os.Environ(), "" // its container has the shared memory that it asks for
	}
	o.Report = func(r berth.Report) {
		if r.State != berth.TaskDone || !asked.ended.Load() {
			reporter.Send(sending, r)
		}
	}
	if err := awaitPeers(ctx, l, asked.hurry); err != nil {
		return exit, false, err
	}
	exit, err = runner.Run(ctx, l, o)
	if err != nil || asked.ended.Load() {
		return exit, err == nil, err
	}
	patience := time.After(lastReport)
	for hurry := asked.hurry; ; {
		select {
		case <-told:
			return exit, true, nil
		case <-hurry:
			hurry, patience = nil, time.After(hurriedReport)
		case <-patience:
			log.Error("the server could not be told how the task ended")
			return exit, false, nil
		}
	}
}

// options is what the task works with, but for what reaches the server.
func options(l berth.Launch, dir string, log *slog.Logger) (runner.Options, error) {
	o := runner.Options{Dir: filepath.Join(dir, "task"), Log: log, Base: environ(!mpi(l))}
	kept, err := NodeDir()
	if err != nil {
		log.Warn("nothing is kept for later tasks", "err", err)
		kept = dir
	}
	if o.Envs, err = envs.Open(filepath.Join(kept, "envs"), envs.Options{Log: log, DockerHost: os.Getenv("DOCKER_HOST"), KeepAnswers: true}); err != nil {
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
// tells it of its job, where it may know that, and of the devices that are its own.
func environ(slurm bool) []string {
	out := runner.BaseEnviron(os.Environ())
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case slurm && strings.HasPrefix(name, "SLURM_") && !strings.HasPrefix(name, "SLURM_ARRAY_"), name == "CUDA_VISIBLE_DEVICES", name == "ROCR_VISIBLE_DEVICES", name == "GPU_DEVICE_ORDINAL":
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

// NodeDir is a directory of the account's own on this machine, where what later tasks need is kept.
func NodeDir() (string, error) { return nodeDir(os.TempDir(), os.Getuid()) }

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

// signals are what a process was asked for by signals.
type signals struct {
	ended atomic.Bool   // the queueing system ends the task
	hurry chan struct{} // closed when there is no time left to wait for the server
	stop  chan struct{}
	in    chan os.Signal
}

// watchSignals passes signals on to the task, until ignore is called.
func watchSignals(c *runner.Control) *signals {
	s := &signals{hurry: make(chan struct{}), stop: make(chan struct{}), in: make(chan os.Signal, 4)}
	signal.Notify(s.in, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	hurry := sync.OnceFunc(func() { close(s.hurry) })
	go func() {
		for asked := false; ; {
			var ask runner.Stop
			select {
			case got := <-s.in:
				switch {
				case got == syscall.SIGUSR2:
					ask.Grace = time.Millisecond
					hurry()
				case got == syscall.SIGTERM:
					s.ended.Store(true)
					hurry()
				case asked: // its grace goes on
					continue
				}
				asked = true
				c.Stop(ask)
			case <-s.stop:
				return
			}
		}
	}()
	return s
}

func (s *signals) ignore() {
	signal.Stop(s.in)
	close(s.stop)
}
