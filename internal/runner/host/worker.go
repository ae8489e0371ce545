package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/idle"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data"
)

// worker runs tasks. Its process may be killed at any time.
type worker struct {
	dir     string
	at      *os.File // the directory itself, wherever it was moved to
	build   string   // of this program, when it was started
	log     *slog.Logger
	journal *journal
	reaped  *reaped
	dirs    *dirs
	logs    *logs
	ca      *caFiles
	sweeper *sweeper
	watch   *filewatch.Watcher
	envs    *environments
	trees   func() *cache.Cache // of what tasks read; nil when it cannot be opened
	gate    *gate
	turn    chan struct{} // has one element while a suspect is prepared
	trial   chan struct{} // has one element while a task is taken up by itself
	trials  atomic.Int32  // how many tasks are, or will be
	// firstTrial is taken up before all others, until firstOver is closed.
	firstTrial berth.TaskID
	firstOver  chan struct{}
	terms      *Terms
	base       []string // what commands inherit

	panicked bool // the worker before it ended by itself

	ctx   context.Context // of all tasks; its end abandons them
	tasks sync.WaitGroup

	mu      sync.Mutex
	jobs    map[berth.TaskID]*job
	homes   map[homeKey]*home
	used    time.Time // when somebody last called
	memory  *idle.Watcher
	senders sync.WaitGroup
	quit    context.CancelCauseFunc
	changed chan struct{} // something ended, or was reported
}

// homeKey is what tells one server from another.
type homeKey struct{ url, ca, storage string }

// home is a server and the way to it.
type home struct {
	*runner.HTTPHome
	*runner.Reporter
	data *data.Client // its connections are shared by the tasks
}

// job is a task as the worker sees it. The worker's mutex guards it.
type job struct {
	launch    berth.Launch
	control   *runner.Control
	immediate bool
	ticket    *ticket
	clean     bool // it ended, and no process of its is left
	state     berth.TaskState
	exit      *berth.Exit
	pid       int  // of the command while it runs, 0 when it is in a container
	running   bool // its command may run
	reported  bool
	suspect   bool          // a worker died while it prepared it
	asked     chan struct{} // closed and nil when the server has answered a report of a suspect
	trial     bool          // it is taken up by itself
}

// Reasons for a worker to end.
var (
	errQuit    = errors.New("asked to quit")
	errRestart = errors.New("asked to restart")
	errOrphan  = errors.New("the reaper is gone")
)

// Exit codes of a worker, for the reaper.
const (
	exitQuit    = 0
	exitFailed  = 1
	exitRestart = 3
)

// openWorker takes the directory over and everything in it. panicked says that the worker before it
// ended by itself.
func openWorker(dir string, panicked bool, log *slog.Logger) (*worker, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	dirs, err := openDirs(dir, log)
	if err != nil {
		return nil, err
	}
	j, err := openJournal(dir, boot)
	if err != nil {
		return nil, err
	}
	if panicked {
		if err := j.panicked(); err != nil {
			log.Error("the end of a worker is not noted", "err", err)
		}
	}
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	w := &worker{
		panicked: panicked,
		dir:      dir, at: at, build: Build(self()), log: log, journal: j, dirs: dirs, ca: &caFiles{dir: dir}, reaped: &reaped{path: filepath.Join(dir, "reaped")},
		sweeper: &sweeper{ended: map[string]bool{}, wake: make(chan struct{}, 1), log: log},
		envs:    &environments{dir: dir, log: log},
		trees:   sync.OnceValue(func() *cache.Cache { return openCache(dir, log) }),
		logs:    &logs{},
		gate:    &gate{dir: dir},
		turn:    make(chan struct{}, 1),
		trial:   make(chan struct{}, 1),
		terms:   &Terms{Dir: dir},
		base:    runner.BaseEnviron(os.Environ()),
		used:    time.Now(),
		memory:  idle.Watch(),
		jobs:    map[berth.TaskID]*job{}, homes: map[homeKey]*home{},
		changed: make(chan struct{}, 1),
	}
	if w.watch, err = filewatch.New(); err != nil {
		log.Warn("no file notices", "err", err)
	}
	return w, nil
}

// run serves on l until something ends the worker; the cause is returned.
func (w *worker) run(ctx context.Context, l net.Listener, signals <-chan os.Signal) error {
	ctx, quit := context.WithCancelCause(ctx)
	defer quit(nil)
	w.ctx, w.quit = ctx, quit
	w.tasks.Go(func() { w.retire(ctx, signals) })
	w.tasks.Go(func() { w.sweeper.run(ctx) })
	w.tasks.Go(func() { w.watchIdle(ctx) })
	w.tasks.Go(func() { w.getWell(ctx) })
	w.tasks.Go(func() { w.tidyCache(ctx) })
	w.recover()

	srv := &server{w: w, conns: map[net.Conn]bool{}}
	served := make(chan error, 1)
	go func() { served <- srv.serve(l) }()
	select {
	case err := <-served:
		quit(fmt.Errorf("serving: %w", err))
	case <-ctx.Done():
		l.Close()
		<-served
	}
	srv.close()
	w.tasks.Wait()
	w.senders.Wait()
	w.dirs.close()
	w.logs.close()
	if w.watch != nil {
		w.watch.Close()
	}
	w.journal.close()
	return context.Cause(ctx)
}

// recover takes up what an earlier worker left.
func (w *worker) recover() {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.journal.entries()
	blamed := w.blamed()
	w.firstTrial, w.firstOver = blamed, make(chan struct{})
	begun := map[berth.TaskID]bool{}
	old, _ := os.ReadDir(filepath.Join(w.dir, "tasks"))
	for _, d := range old {
		id := berth.TaskID(strings.TrimSuffix(d.Name(), runner.SentSuffix))
		begun[id] = true
		// Of a task that is not known, or whose command has not begun, nothing is needed.
		if e, ok := known[id]; !ok || e.mark.Step == "" {
			w.dirs.give(filepath.Join(w.dir, "tasks", d.Name()), false)
		}
	}
	for id, e := range known {
		var l berth.Launch
		if err := json.Unmarshal(e.launch, &l); err != nil {
			w.log.Error("launch in the journal not understood", "task", id, "err", err)
			continue
		}
		switch {
		case e.boot != w.journal.boot || e.mark.Step == runner.StepDone:
		case blamed != "":
			if id == blamed {
				w.blame(id, &e)
			}
		case w.journal.crashed && begun[id] && e.mark.Step == "":
			w.countDeath(id, &e)
		}
		last := e.mark
		running := last.Step == runner.StepStarted || last.Step == runner.StepExec || last.Step == ""
		if running && e.boot != "" && e.boot != w.journal.boot {
			last.Step = runner.StepExited
			last.Exit = &berth.Exit{Code: -1, Cause: "lost", Reason: "the machine was restarted while it ran"}
		}
		j := &job{launch: l, control: new(runner.Control), state: berth.TaskStarting}
		if e.deaths > 0 && last.Step == "" {
			j.suspect, j.asked = true, make(chan struct{})
			last.Seq = e.deaths << 20 // what it reports now comes after what it reported before
		}
		w.jobs[id] = j
		j.running = last.Step == runner.StepStarted || last.Step == runner.StepExec
		if last.Step == runner.StepDone {
			j.state, j.exit = berth.TaskDone, last.Exit
		}
		if w.journal.panics >= mostPanics && last.Step != "" && last.Step != runner.StepDone {
			j.trial = true
			w.trials.Add(1)
		}
		j.ticket = w.ticket(&l, last.Step != "")
		w.launch(j, last)
	}
	if j := w.jobs[blamed]; j == nil || !j.trial {
		close(w.firstOver)
	}
}

// launch runs a job in a goroutine of the worker's. The mutex is held.
func (w *worker) launch(j *job, last runner.Mark) {
	id := j.launch.Task
	prepared := func() {}
	o := runner.Options{
		Dir: filepath.Join(w.dir, "tasks", string(id)),
		Keep: func(m runner.Mark) error {
			prepared()
			if m.Step == runner.StepExec || m.Step == runner.StepStarted {
				if err := w.step(j, m); err != nil {
					return err
				}
			}
			if m.Step == runner.StepExec && j.immediate {
				return nil // the claim says so already
			}
			if err := w.keep(id, m); err != nil || m.Step == runner.StepStarted {
				return err
			}
			return w.step(j, m) // what is kept of its end is safe
		},
		MakeDir: w.dirs.take,
		OpenLog: w.logs.take,
		CAFile:  w.ca.keep,
		Last:    last,
		Status:  w.reaped.status,
		Control: j.control,
		Watch:   w.watch,
		Envs:    w.envs,
		Base:    w.base,
		Log:     w.log,
	}
	if l := &j.launch; l.Code != "" || len(l.Inputs) > 0 {
		o.Cache = w.trees()
	}
	h := w.home(j.launch.Home, j.launch.Artifacts)
	if h != nil {
		o.Home, o.Data = h, h.data
	}
	o.Report = func(r berth.Report) {
		clean := r.State == berth.TaskDone && alone()
		w.mu.Lock()
		j.state, j.clean = r.State, clean
		if r.Exit != nil {
			j.exit = r.Exit
		}
		w.mu.Unlock()
		if r.State == berth.TaskDone {
			w.gate.leave(j.ticket) // the next one begins while this one is reported
			if !clean {
				w.sweeper.add(o.Dir)
			}
			if runner.DiskFull(w.dir) { // the server, which would have it removed, may be waiting for the room it takes
				w.dirs.give(o.Dir, false)
			}
		}
		if h != nil {
			h.Send(w.ctx, r)
		} else if r.State == berth.TaskDone {
			w.delivered(r)
		}
	}
	w.tasks.Go(func() {
		defer w.gate.leave(j.ticket)
		if !w.admitted(j) {
			return
		}
		if j.suspect {
			var ok bool
			if prepared, ok = w.vet(j, h, last.Seq); !ok {
				return
			}
			defer prepared()
		}
		if j.trial {
			over, ok := w.onTrial(id)
			if !ok {
				return
			}
			defer over()
		}
		if _, err := runner.Run(w.ctx, j.launch, o); err != nil && w.ctx.Err() == nil {
			w.log.Error("task abandoned", "task", id, "err", err)
		}
	})
}

// keep records a step. The end of a command is worth waiting for: a disk that is full now may not
// be so later.
func (w *worker) keep(id berth.TaskID, m runner.Mark) error {
	for {
		err := w.journal.mark(id, m)
		if err == nil || m.Step == runner.StepExec || m.Step == runner.StepStarted {
			return err
		}
		w.log.Error("the end of a task waits to be kept", "task", id, "err", err)
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-w.ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// home is the way to a server, at whose own storage artifacts is, nil when there is none. The mutex
// is held.
func (w *worker) home(at berth.Home, artifacts string) *home {
	if at.URL == "" {
		return nil
	}
	k := homeKey{at.URL, at.CA, data.Root(artifacts)}
	if h := w.homes[k]; h != nil {
		return h
	}
	c, err := runner.NewHTTPHome(at.URL, at.CA)
	if err != nil {
		w.log.Error("no reports to this home", "url", at.URL, "err", err)
		return nil
	}
	r := runner.NewReporter(c, runner.ReporterOptions{
		Delivered: w.delivered,
		Stop:      func(id berth.TaskID) { w.stop(stopRequest{Task: id}) },
		Busy:      w.gate.crowded,
		MaxWait:   time.Second,
		Log:       w.log,
	})
	h := &home{c, r, nil}
	socket, _ := strings.CutPrefix(at.URL, "unix://")
	if socket == at.URL {
		socket = ""
	}
	if h.data, err = data.New(data.Options{CA: at.CA, Socket: socket, Storage: k.storage}); err != nil {
		w.log.Error("no data from this home", "url", at.URL, "err", err)
	}
	w.homes[k] = h
	w.senders.Go(func() {
		r.Run(w.ctx)
		c.Close()
	})
	return h
}

// delivered notes that the server knows the end of a task.
func (w *worker) delivered(r berth.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[r.Task]
	if j != nil && j.asked != nil {
		close(j.asked)
		j.asked = nil
	}
	if r.State != berth.TaskDone {
		return
	}
	if j != nil {
		j.reported = true
	}
	w.change()
}
