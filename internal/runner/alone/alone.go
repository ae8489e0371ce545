//go:build unix

// Package alone runs one task in a process that a queueing system started, such as a batch job of
// Slurm, or several tasks of an array in turn. The process ends as the last command did, once the
// server has been told.
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
// FILE [--dir DIR] [--index N] [--array NAME]`. It returns the exit code of the process:
// [berth.ExitRunner] when the task could not be run.
//
// SIGUSR1 asks the task to end within the grace of its launch, as SIGWINCH does, which a queueing
// system can send to all processes of a job without harm. SIGUSR2 ends it at once. SIGTERM
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
	inArray := flags.String("array", "", "the name of the array that the launches in the script are, of which the server says which is next")
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
		if text, err = os.ReadFile(*script); err == nil && *inArray != "" {
			end := array{name: *inArray, script: text, index: *index, dir: *dir, origin: origin, log: log}.run(ctx)
			if err := cache.RemoveAll(*dir); err != nil {
				log.Warn("the directory of the task is left behind", "dir", *dir, "err", err)
			}
			return end
		}
		if err == nil {
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
	w, err := newWorker(ctx, l, dir, log)
	if err != nil {
		return exit, false, err
	}
	defer w.close()
	if m != nil {
		go m.listen(w.asked)
	}
	return w.run(ctx, l, container)
}

// worker runs tasks that reach the server in the same way, one after the other.
type worker struct {
	log      *slog.Logger
	asked    *signals
	home     *runner.HTTPHome
	reporter *runner.Reporter
	stop     func() // ends the reporter, and waits for it
	options  runner.Options

	mu   sync.Mutex
	task berth.TaskID  // that runs
	told chan struct{} // closed when the server was told that it has ended
}

// newWorker makes the worker of a task and those like it. From here on signals are taken.
func newWorker(ctx context.Context, l berth.Launch, dir string, log *slog.Logger) (*worker, error) {
	w := &worker{log: log, asked: watchSignals()}
	var err error
	if w.home, err = runner.NewHTTPHome(l.Home.URL, l.Home.CA); err != nil {
		w.asked.ignore()
		return nil, err
	}
	w.reporter = runner.NewReporter(w.home, runner.ReporterOptions{
		Delivered: func(r berth.Report) {
			if r.State == berth.TaskDone {
				w.mu.Lock()
				defer w.mu.Unlock()
				if r.Task == w.task {
					close(w.told)
				}
			}
		},
		Stop: func(id berth.TaskID) {
			w.mu.Lock() // until it is asked, so that it cannot be the next task that is
			defer w.mu.Unlock()
			if id == w.task {
				w.asked.forward(runner.Stop{})
			}
		},
		Log: log,
	})
	sending, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { w.reporter.Run(sending) })
	w.stop = func() {
		cancel()
		running.Wait()
	}
	if w.options, err = options(l, dir, log); err != nil {
		w.close()
		return nil, err
	}
	w.options.Home = w.home
	w.options.Report = func(r berth.Report) {
		if r.State != berth.TaskDone || !w.asked.ended.Load() {
			w.reporter.Send(sending, r)
		}
	}
	return w, nil
}

func (w *worker) close() {
	w.stop()
	w.home.Close()
	w.asked.ignore()
}

// run runs a task. known says that the server was told how it ended, or is told by the queueing
// system.
func (w *worker) run(ctx context.Context, l berth.Launch, container bool) (exit berth.Exit, known bool, err error) {
	o := w.options
	o.Control, o.Base = new(runner.Control), environ(!mpi(l))
	told := make(chan struct{})
	w.mu.Lock()
	w.task, w.told = l.Task, told
	w.mu.Unlock()
	w.asked.attach(o.Control)
	defer w.asked.attach(nil)
	if container {
		o.Base, l.ShmSize = os.Environ(), "" // its container has the shared memory that it asks for
	}
	if err := awaitPeers(ctx, l, w.asked.hurry); err != nil {
		return exit, false, err
	}
	exit, err = runner.Run(ctx, l, o)
	if err != nil || w.asked.ended.Load() {
		return exit, err == nil, err
	}
	patience := time.After(lastReport)
	for hurry := w.asked.hurry; ; {
		select {
		case <-told:
			return exit, true, nil
		case <-hurry:
			hurry, patience = nil, time.After(hurriedReport)
		case <-patience:
			w.log.Error("the server could not be told how the task ended")
			return exit, false, nil
		}
	}
}

// options is what the task works with, but for what reaches the server.
func options(l berth.Launch, dir string, log *slog.Logger) (runner.Options, error) {
	o := runner.Options{Dir: filepath.Join(dir, "task"), Log: log}
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

	mu      sync.Mutex
	control *runner.Control // of the task that runs
	waiting *runner.Stop    // what came when none did, and is for the next one
	stopped bool            // the task that runs was asked to stop by a signal
}

// attach has a task get what comes from now on, and what waits; nil is none.
func (s *signals) attach(c *runner.Control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control = c
	if c == nil {
		return
	}
	s.stopped = s.waiting != nil
	if s.waiting != nil {
		c.Stop(*s.waiting)
		s.waiting = nil
	}
}

// forward asks the task that runs to stop.
func (s *signals) forward(ask runner.Stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.control != nil {
		s.control.Stop(ask)
	}
}

// onSignal asks the task that runs to stop, or the next one. Of signals that were taken before only
// those that say so are heard again.
func (s *signals) onSignal(ask runner.Stop, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.control == nil:
		s.waiting = &ask
	case s.stopped && !again: // its grace goes on
	default:
		s.stopped = true
		s.control.Stop(ask)
	}
}

// watchSignals passes signals on to the tasks, see attach, until ignore is called.
func watchSignals() *signals {
	s := &signals{hurry: make(chan struct{}), stop: make(chan struct{}), in: make(chan os.Signal, 4)}
	signal.Notify(s.in, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	hurry := sync.OnceFunc(func() { close(s.hurry) })
	go func() {
		for {
			select {
			case got := <-s.in:
				var ask runner.Stop
				switch got {
				case syscall.SIGUSR2:
					ask.Grace = time.Millisecond
					hurry()
				case syscall.SIGTERM:
					s.ended.Store(true)
					hurry()
				}
				s.onSignal(ask, got != syscall.SIGUSR1 && got != syscall.SIGWINCH)
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
