// Package runner is the node side of a task: it stages code and inputs, prepares the environment,
// runs the command, keeps its output, uploads what it made and reports how it went.
//
// [Run] carries out one task and is the same everywhere: many at once inside a host (package host),
// or alone in a process that a queueing system started. What has to survive a crash of that process
// goes through [Options.Keep]; a later Run that is given the last [Mark] takes up where the earlier
// one ended and never runs the command twice.
package runner

import (
	"context"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/mltable"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data"
)

// Home is the server as a runner sees it.
type Home interface {
	// Report delivers reports, in order. The caller repeats it until it returns no error.
	Report(ctx context.Context, rs []berth.Report) (Reply, error)
	// AppendLog adds p to a log of the task at offset and returns the size the log then has. Where
	// the log is not offset long the size it has comes back without an error, and nothing was
	// added. It is used only for tasks whose output does not go to a file of the server's own.
	AppendLog(ctx context.Context, t Task, name string, offset int64, p []byte) (size int64, err error)
	// SignStorage has requests of the task to storage elsewhere signed, for which it has a grant:
	// it returns where each of them goes.
	SignStorage(ctx context.Context, t Task, grant string, rs []berth.OutsideRequest) (urls []string, err error)
}

// Task names a task to the server and proves the right to report on it.
type Task struct {
	ID    berth.TaskID
	Token string
}

// Reply is the server's answer to reports.
type Reply struct {
	Stop    []berth.TaskID `json:"stop,omitempty"`    // tasks that should end
	Unknown []berth.TaskID `json:"unknown,omitempty"` // tasks the server does not know, or not with this token
}

// Step is how far a task has progressed, for [Mark].
type Step string

// The steps that are kept, in order. Before the first one nothing of the user's has run.
const (
	StepExec    Step = "exec"    // the command is about to be started
	StepStarted Step = "started" // it runs: PID and StartTime say as what
	StepExited  Step = "exited"  // it ended: Exit says how; its outputs are not uploaded yet
	StepDone    Step = "done"    // all is over; Exit is final
)

// Mark is what must be remembered of a task to continue it.
type Mark struct {
	Step      Step            `json:"step"`
	PID       int             `json:"pid,omitempty"`
	Box       string          `json:"box,omitempty"`  // id of the container, where there is one
	StartTime uint64          `json:"born,omitempty"` // when the process began, as /proc/PID/stat counts
	Seq       int             `json:"seq,omitempty"`  // of the last report
	Times     berth.Waterfall `json:"times,omitzero"`
	Exit      *berth.Exit     `json:"exit,omitempty"`
}

// Options are the dependencies and settings of Run.
type Options struct {
	// Dir is the task's own directory. Run creates it and its contents, and leaves it for the
	// caller to remove.
	Dir string
	// MakeDir creates Dir; nil means [MakeDir].
	MakeDir func(dir string) error
	// OpenLog opens the file that takes the output, for appending, and makes it where it is not
	// there; nil means [OpenLog].
	OpenLog func(path string) (fd int, err error)
	// CAFile stores a certificate in a file that commands outside containers can read; nil stores
	// it in Dir.
	CAFile func(pem string) (path string, err error)
	// Report queues a report for the server. Only the last one of a task, that of its end, may
	// block.
	Report func(berth.Report)
	// Keep makes a step durable before Run continues. An error ends the task. Nil keeps nothing.
	Keep func(Mark) error
	// Last is the last mark an earlier Run kept, the zero Mark for a new task.
	Last Mark
	// Status returns how a process ended that is not a child of this one (an earlier Run started
	// it), and false if nobody knows. Nil knows nothing.
	Status func(ctx context.Context, pid int, startTime uint64) (WaitStatus, bool)
	// Control takes requests to end the task. It may be nil.
	Control *Control
	// Envs prepares environments. Nil can only run commands on the machine as it is.
	Envs Environments
	// Home takes the log of a task without a LogFile, and signs requests to storage elsewhere. It
	// may be nil otherwise.
	Home Home
	// Cache keeps what tasks read. Nil fetches it for each task.
	Cache *cache.Cache
	// Data transfers files. Nil creates a client for this task only.
	Data *data.Client
	// Watch reports the first output. It may be nil.
	Watch *filewatch.Watcher
	// Patience is how long to retry external storage that does not answer; 0 means ten minutes. For
	// our own server there is no limit.
	Patience time.Duration
	// Through is how often to look for files to send while the command runs; 0 means five seconds.
	Through time.Duration
	// FreeDisk returns the free space of the disk; nil asks the system.
	FreeDisk func() int64
	// Base is the environment commands inherit; nil takes [BaseEnviron] of this process.
	Base []string
	Log  *slog.Logger
}

// Environments prepares what commands run in; *envs.Cache does.
type Environments interface {
	// Prepare blocks until e is ready. It reports progress, and warns of what the user should know.
	Prepare(ctx context.Context, e berth.LaunchEnv, progress, warn func(string)) (*envs.Env, error)
	// Machine is the Python that commands on the machine itself find, nil if there is none: with
	// the host's variables, and the job's on top of them, in dir.
	Machine(ctx context.Context, host []string, job map[string]string, dir string) *envs.Base
	// Adopt finds a container that an earlier runner started, nil if there is none.
	Adopt(ctx context.Context, label, value string, log io.Writer) (*envs.Running, error)
}

// Run executes the task and returns how it ended. It reports every change through o.Report,
// including the end. Canceling ctx abandons the task without ending its process: a later Run with
// the last mark continues it.
func Run(ctx context.Context, l berth.Launch, o Options) (exit berth.Exit, err error) {
	t := &task{l: &l, o: &o, seq: o.Last.Seq, times: o.Last.Times}
	if o.Control == nil {
		o.Control = new(Control)
	}
	if o.MakeDir == nil {
		o.MakeDir = MakeDir
	}
	if o.OpenLog == nil {
		o.OpenLog = OpenLog
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Base == nil {
		o.Base = BaseEnviron(os.Environ())
	}
	if t.times.Submitted.IsZero() {
		t.times.Submitted = l.Submitted
	}
	return t.run(ctx)
}

// task is a Run under way.
type task struct {
	l         *berth.Launch
	o         *Options
	times     berth.Waterfall
	peak      berth.Usage
	running   running          // the command, until its end is kept
	stdin     *stdin           // what somebody types; nil for most commands
	holes     bool             // the disk of the log was full while the command ran
	stop      *Stop            // the request that is being obeyed
	first     *filewatch.Watch // until the first output; nil when nobody watches
	shipped   []output         // the logs, with how much of them the server has
	wrote     atomic.Bool      // something may have been sent while the command ran
	noting    sync.Mutex
	sentOf    []string // outputs of which something was sent, as reported
	reporting sync.Mutex
	seq       int // of the last report
	// values is what expressions stand for, by their text; paths is where inputs and outputs are,
	// by their name.
	values, paths map[string]string
	// trees are what was brought to the cache, and room where they are mounted; nil where nothing
	// is.
	bringing sync.Mutex
	trees    []*tree
	streams  []*streamed
	// forms is how the rows of tables that were evaluated are to be read, by where they are.
	forms map[string]mltable.Form
	// noStreams is why none can be.
	noStreams string
	room      *room
}

// Immediate reports whether nothing precedes the command of l: no staging, no environment. Such a
// task is at StepExec from the beginning.
func Immediate(l *berth.Launch) bool {
	return l.Code == "" && len(l.Inputs) == 0 && len(l.Outputs) == 0 && !needsEnvironment(l.Environment)
}

// unique names the task on this machine, which may have several hosts with tasks of the same id.
func (t *task) unique() string {
	h := fnv.New32a()
	h.Write([]byte(t.o.Dir))
	return "berth-" + strconv.FormatUint(uint64(h.Sum32()), 36) + "-" + string(t.l.Task)
}

// data is the client that moves files, and what to do when it is not needed any more.
func (t *task) data() (c *data.Client, done func(), err error) {
	if t.o.Data != nil {
		return t.o.Data, func() {}, nil
	}
	if c, err = data.New(data.Options{CA: t.l.Home.CA}); err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

// workdir is the directory the command runs in.
func (t *task) workdir() string { return filepath.Join(t.o.Dir, "wd") }

// fail is how a task ends that could not run its command.
func fail(cause string, err error) *berth.Exit {
	return &berth.Exit{Code: -1, Cause: cause, Reason: err.Error()}
}

func (t *task) run(ctx context.Context) (berth.Exit, error) {
	if last := t.o.Last; last.Step != "" {
		t.wrote.Store(true)
		// Reports after the mark was kept have higher numbers than it says.
		t.seq += 1 << 20
		if err := t.keep(last); err != nil {
			return berth.Exit{}, err
		}
	}
	var exit *berth.Exit
	switch t.o.Last.Step {
	case StepDone:
		exit = t.o.Last.Exit
		t.report(berth.TaskDone, "", func(r *berth.Report) { r.Exit = exit })
		return *exit, nil
	case StepExited:
		exit = t.o.Last.Exit
	case StepStarted, StepExec:
		exit = t.adopt(ctx)
	default:
		exit = t.begin(ctx)
	}
	defer t.letGo(false)
	if ctx.Err() != nil {
		return berth.Exit{}, context.Cause(ctx)
	}
	t.dropPrivate()
	if t.hasUploads() {
		if t.o.Last.Step != StepExited {
			if err := t.keep(Mark{Step: StepExited, Exit: exit}); err != nil {
				return berth.Exit{}, err
			}
			t.letGo(true)
		}
		t.upload(ctx, exit)
	}
	if ctx.Err() != nil {
		return berth.Exit{}, context.Cause(ctx)
	}
	t.times.Ended = time.Now() // to look for files is not the job's time
	warnings := make([]string, 0, 2)
	if t.holes {
		warnings = append(warnings, "the disk was full while the command ran: its log may lack what it wrote then")
	}
	if stray := t.stray(); stray != "" {
		warnings = append(warnings, stray)
	}
	if err := t.keep(Mark{Step: StepDone, Exit: exit}); err != nil {
		return berth.Exit{}, err
	}
	t.letGo(true)
	t.report(berth.TaskDone, "", func(r *berth.Report) {
		r.Exit, r.Warning = exit, strings.Join(warnings, "; ")
		if t.peak != (berth.Usage{}) {
			u := t.peak
			r.Usage = &u
		}
	})
	return *exit, nil
}

// letGo closes the command, the first time it is called.
func (t *task) letGo(over bool) {
	if t.running != nil {
		t.running.close(over)
		t.running = nil
	}
}

// begin takes a new task up to the end of its process.
func (t *task) begin(ctx context.Context) *berth.Exit {
	t.times.Staging = time.Now()
	defer t.closeTrees()
	if err := t.stage(ctx); err != nil {
		return t.cut(fail("staging", err))
	}
	var env *envs.Env
	if needsEnvironment(t.l.Environment) {
		t.times.Environment = time.Now()
		var err error
		if env, err = t.environment(ctx); err != nil {
			return t.cut(fail("environment", err))
		}
		defer env.Release()
	}
	err := t.interruptibly(ctx, func(ctx context.Context) error {
		if err := t.place(ctx, env); err != nil || env != nil {
			return err
		}
		env = t.machine(ctx)
		return nil
	})
	if err != nil {
		return t.cut(fail("staging", err))
	}
	spec, err := t.spec(env)
	if err != nil {
		return t.cut(fail("command", err))
	}
	return t.execute(ctx, spec)
}

// needsEnvironment says whether there is anything to prepare. An environment without a name or
// content is the machine as it is.
func needsEnvironment(e berth.LaunchEnv) bool {
	if e.Image != "" || e.Conda != "" || e.Pip != "" || e.Build != "" {
		return true
	}
	return e.Name != "" && !strings.EqualFold(e.Name, "none") && !strings.EqualFold(e.Name, "host")
}

// environment prepares what the launch names, and tells how it gets on.
func (t *task) environment(ctx context.Context) (env *envs.Env, err error) {
	if t.o.Envs == nil {
		return nil, berth.Errorf(berth.Unsupported, "this runner prepares no environments")
	}
	t.report(berth.TaskStarting, "environment", nil)
	say := func(detail, warning string) {
		t.report(berth.TaskStarting, "environment", func(r *berth.Report) { r.Detail, r.Warning = detail, warning })
	}
	err = t.interruptibly(ctx, func(ctx context.Context) error {
		env, err = t.o.Envs.Prepare(ctx, t.l.Environment, func(s string) { say(s, "") }, func(s string) { say("", s) })
		return err
	})
	if err != nil && env != nil {
		env.Release()
		env = nil
	}
	return env, err
}

// cut corrects the end of a task that was stopped before its command began.
func (t *task) cut(exit *berth.Exit) *berth.Exit {
	if t.stop != nil {
		return &berth.Exit{Code: -1, Cause: t.stop.cause(), Reason: t.stop.why()}
	}
	return exit
}

func (t *task) keep(m Mark) error {
	if t.o.Keep == nil {
		return nil
	}
	m.Seq, m.Times = t.seq, t.times
	return t.o.Keep(m)
}

func (t *task) report(state berth.TaskState, phase string, more func(*berth.Report)) {
	if t.o.Report == nil {
		return
	}
	t.reporting.Lock() // inputs are fetched, and environments prepared, by several goroutines
	defer t.reporting.Unlock()
	t.seq++
	r := berth.Report{
		Task: t.l.Task, Token: t.l.Home.Token, Seq: t.seq, At: time.Now(), State: state, Phase: phase,
		FirstOutput: t.times.FirstOutput, Times: t.times,
	}
	if more != nil {
		more(&r)
	}
	t.o.Report(r)
}
