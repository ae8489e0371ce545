// Package fake is a driver without machines: tasks are timers. Tests of the control loops use it,
// and a development server can offer it as a compute of any size.
//
// Time is package time's, so under testing/synctest a fake target runs on the bubble's clock.
package fake

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// Outcome is what becomes of a task.
type Outcome struct {
	Refuse error         // Start returns it, and nothing is placed
	Queue  time.Duration // how long the target holds it before it starts
	Run    time.Duration // how long it runs; negative means until Finish
	Exit   berth.Exit    // how it ends
	Output string        // written to Launch.LogFile, when there is one
	Deaf   bool          // it ignores Stop until the grace is over
	Silent bool          // its runner does not report; only Observe tells
	Final  bool          // and Observe says that no report is under way
}

// Options adjust a Driver. The zero value is good.
type Options struct {
	// Nodes are those that are there; nil is one, or none when the target scales.
	Nodes []driver.Node
	// Scales lets nodes be made, which takes Boot, and removed. Each launch then has to name one.
	Scales bool
	Boot   time.Duration
	// Gangs is how many nodes a gang can have on a target that starts gangs as a whole.
	Gangs int
	// Turns is the name of the array that all tasks are of, in the order in which they were
	// started. Each begins when Turn gives it to a runner.
	Turns string
	// Outcome decides about each task; nil reads the launch's command, see Script.
	Outcome func(berth.Launch) Outcome
	// Report takes what the runners of the tasks would report.
	Report func([]berth.Report)
	// Wall is the clock of the target's machine; nil is time.Now.
	Wall func() time.Time
}

// Driver is a fake target. Its methods may be called concurrently.
type Driver struct {
	o Options

	mu     sync.Mutex
	nodes  []driver.Node
	tasks  map[berth.TaskID]*task
	starts []berth.TaskID
	broken map[string]error
	hints  map[chan struct{}]bool
	closed bool
	timers sync.WaitGroup
	turns  map[int]int // the last task that each runner was given
}

type task struct {
	launch  berth.Launch
	outcome Outcome
	state   berth.TaskState
	times   berth.Waterfall
	seq     int
	exit    *berth.Exit
	timer   *time.Timer
	stopped bool
	given   bool           // to a runner, see Turn
	gang    []berth.TaskID // the tasks that were started with it, itself included; nil without a gang
}

// New makes a target.
func New(o Options) *Driver {
	if o.Outcome == nil {
		o.Outcome = Script
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	nodes := slices.Clone(o.Nodes)
	if o.Nodes == nil && !o.Scales {
		nodes = []driver.Node{{Name: "fake-0", CPUs: 4, Memory: 16 << 30, OS: "linux", Arch: "amd64"}}
	}
	return &Driver{o: o, nodes: nodes, tasks: map[berth.TaskID]*task{}, broken: map[string]error{}, hints: map[chan struct{}]bool{}, turns: map[int]int{}}
}

// Open is the driver's [driver.Open].
func Open(driver.Config) (driver.Driver, error) { return New(Options{}), nil }

// Script reads an outcome from a command of the simplest kind: commands separated by semicolons,
// each one of true, false, exit N, sleep SECONDS, echo WORDS, trap (ignore the request to stop),
// silent (report nothing), final (and let Observe say that none will come) or forever. Anything
// else succeeds at once.
func Script(l berth.Launch) Outcome {
	var o Outcome
	for part := range strings.SplitSeq(l.Command, ";") {
		f := strings.Fields(part)
		if len(f) == 0 {
			continue
		}
		arg := strings.Join(f[1:], " ")
		switch f[0] {
		case "false":
			o.Exit.Code = 1
		case "exit":
			o.Exit.Code, _ = strconv.Atoi(arg)
		case "sleep":
			if s, err := strconv.ParseFloat(arg, 64); err == nil {
				o.Run += time.Duration(s * float64(time.Second))
			}
		case "echo":
			o.Output += arg + "\n"
		case "trap":
			o.Deaf = true
		case "silent":
			o.Silent = true
		case "final":
			o.Silent, o.Final = true, true
		case "forever":
			o.Run = -1
		}
	}
	if o.Exit.Code != 0 {
		o.Exit.Reason = "the command ended with exit code " + strconv.Itoa(o.Exit.Code)
	}
	return o
}

// Probe is [driver.Driver.Probe].
func (d *Driver) Probe(context.Context) (driver.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.broken["probe"]; err != nil {
		return driver.Info{}, err
	}
	return d.describe(), nil
}

// Describe is [driver.Describer.Describe].
func (d *Driver) Describe() driver.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.describe()
}

func (d *Driver) describe() driver.Info {
	return driver.Info{
		Nodes: slices.Clone(d.nodes), SharedDisk: true, Distributed: true, Address: "127.0.0.1", Watches: true, Scales: d.o.Scales,
		Gangs: d.o.Gangs > 0, MaxNodes: d.o.Gangs, Turns: d.o.Turns != "",
	}
}

// Start is [driver.Driver.Start].
func (d *Driver) Start(_ context.Context, l berth.Launch) (driver.Handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.start(l)
}

// StartGang is [driver.Ganger.StartGang].
func (d *Driver) StartGang(_ context.Context, all []berth.Launch) (hs []driver.Handle, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(all) > d.o.Gangs {
		return nil, berth.Errorf(berth.Unsupported, "there are no %d nodes", len(all))
	}
	for _, l := range all {
		if err := d.o.Outcome(l).Refuse; err != nil {
			return nil, err
		}
	}
	gang := make([]berth.TaskID, len(all))
	for i, l := range all {
		gang[i] = l.Task
	}
	for _, l := range all {
		h, serr := d.start(l)
		if t := d.tasks[l.Task]; t != nil {
			t.gang = gang
		}
		if hs = append(hs, h); serr != nil {
			err = serr // the answer is lost, and the rest is started all the same
		}
	}
	return hs, err
}

// start is Start with the mutex held.
func (d *Driver) start(l berth.Launch) (driver.Handle, error) {
	if err := d.broken["start"]; err != nil {
		return "", err
	}
	if l.Task == "" {
		return "", berth.Errorf(berth.Invalid, "the launch names no task")
	}
	if d.tasks[l.Task] != nil {
		return handle(l.Task), d.broken["answer"]
	}
	if d.o.Scales && d.at(l.Node) < 0 {
		return "", berth.Errorf(berth.NotFound, "there is no node %q", l.Node)
	}
	o := d.o.Outcome(l)
	if o.Refuse != nil {
		return "", o.Refuse
	}
	t := &task{launch: l, outcome: o, state: berth.TaskPlaced}
	d.tasks[l.Task] = t
	d.starts = append(d.starts, l.Task)
	switch {
	case d.o.Turns != "": // its runner asks
	case o.Queue > 0:
		d.after(t, o.Queue, d.begin)
	default:
		d.begin(t)
	}
	return handle(l.Task), d.broken["answer"]
}

// Observe is [driver.Driver.Observe].
func (d *Driver) Observe(context.Context) ([]driver.Observed, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.broken["observe"]; err != nil {
		return nil, err
	}
	var all []driver.Observed
	for id, t := range d.tasks {
		o := driver.Observed{Task: id, Handle: handle(id), State: t.state, Exit: t.exit, Node: t.launch.Node, Final: t.exit != nil && t.outcome.Final}
		if o.Node == "" && len(d.nodes) > 0 {
			o.Node = d.nodes[0].Name
		}
		if t.state == berth.TaskPlaced {
			o.Why = "the target holds it in its queue"
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b driver.Observed) int { return strings.Compare(string(a.Task), string(b.Task)) })
	return all, nil
}

// Stop is [driver.Driver.Stop]. Like those of real targets, a gang is stopped as a whole.
func (d *Driver) Stop(_ context.Context, h driver.Handle, s driver.Stop) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.broken["stop"]; err != nil {
		return err
	}
	for _, t := range d.together(taskOf(h)) {
		d.stop(t, s)
	}
	return nil
}

// together are a task that is there and those of its gang.
func (d *Driver) together(id berth.TaskID) (all []*task) {
	t := d.tasks[id]
	switch {
	case t == nil:
		return nil
	case t.gang == nil:
		return []*task{t}
	}
	for _, id := range t.gang {
		if t := d.tasks[id]; t != nil {
			all = append(all, t)
		}
	}
	return all
}

// stop ends a task that is not over.
func (d *Driver) stop(t *task, s driver.Stop) {
	if t.state == berth.TaskDone {
		return
	}
	t.stopped = true
	t.outcome.Exit = berth.Exit{
		Code: 143, Signal: "SIGTERM", Cause: cmp.Or(s.Cause, "canceled"), Reason: cmp.Or(s.Why, "it was asked to stop"),
	}
	if t.outcome.Deaf {
		t.outcome.Exit.Code, t.outcome.Exit.Signal = 137, "SIGKILL"
		d.after(t, s.Grace, d.end)
	} else {
		d.end(t)
	}
}

// Remove is [driver.Driver.Remove].
func (d *Driver) Remove(_ context.Context, h driver.Handle) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.broken["remove"]; err != nil {
		return err
	}
	for _, t := range d.together(taskOf(h)) {
		if t.state != berth.TaskDone {
			return berth.Errorf(berth.Conflict, "task %s is not over: stop it first", t.launch.Task)
		}
	}
	delete(d.tasks, taskOf(h))
	return nil
}

// Watch is [driver.Watcher.Watch].
func (d *Driver) Watch(ctx context.Context) (<-chan struct{}, error) {
	c := make(chan struct{}, 1)
	d.mu.Lock()
	d.hints[c] = true
	d.mu.Unlock()
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.hints, c)
		close(c)
	})
	return c, nil
}

// Close stops every timer and waits for the ones that fire.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	for _, t := range d.tasks {
		d.halt(t)
	}
	d.mu.Unlock()
	d.timers.Wait()
	return nil
}

func handle(id berth.TaskID) driver.Handle { return driver.Handle("fake1:" + string(id)) }

func taskOf(h driver.Handle) berth.TaskID {
	return berth.TaskID(strings.TrimPrefix(string(h), "fake1:"))
}

// after arranges for f, in place of whatever was arranged for t before. The mutex is held, as it is
// when f runs.
func (d *Driver) after(t *task, wait time.Duration, f func(*task)) {
	d.halt(t)
	if d.closed {
		return
	}
	d.timers.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		defer d.timers.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		if t.timer == timer {
			t.timer = nil
			f(t)
		}
	})
	t.timer = timer
}

// halt calls off what was arranged for t.
func (d *Driver) halt(t *task) {
	if t.timer != nil {
		if t.timer.Stop() {
			d.timers.Done()
		}
		t.timer = nil
	}
}

// begin starts a task that is placed.
func (d *Driver) begin(t *task) {
	now := d.o.Wall()
	t.state = berth.TaskRunning
	t.times.Staging, t.times.Started = now, now
	if t.outcome.Output != "" && t.launch.LogFile != "" {
		if f, err := os.OpenFile(t.launch.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString(t.outcome.Output)
			f.Close()
		}
		t.times.FirstOutput = now
	}
	d.tell(t)
	if t.outcome.Run >= 0 {
		d.after(t, t.outcome.Run, d.end)
	}
}

// end finishes a task with the exit its outcome names.
func (d *Driver) end(t *task) {
	d.halt(t)
	t.state = berth.TaskDone
	t.times.Ended = d.o.Wall()
	e := t.outcome.Exit
	t.exit = &e
	d.tell(t)
}

// tell reports on a task and hints at the change.
func (d *Driver) tell(t *task) {
	d.hint()
	if d.o.Report == nil || t.outcome.Silent {
		return
	}
	t.seq++
	d.o.Report([]berth.Report{{
		Task: t.launch.Task, Token: t.launch.Home.Token, Seq: t.seq, At: d.o.Wall(), State: t.state, Phase: phase(t.state),
		FirstOutput: t.times.FirstOutput, Times: t.times, Exit: t.exit,
	}})
}

func phase(s berth.TaskState) string {
	if s == berth.TaskRunning {
		return "running"
	}
	return ""
}
