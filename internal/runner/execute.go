package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/runner/group"
)

// watchFirst is when a command's log is watched for its first output. Of a command that ends
// before, the log is looked at then.
const watchFirst = 5 * time.Millisecond

// defaultGrace is what a process is given between SIGTERM and SIGKILL when nobody says.
const defaultGrace = 30 * time.Second

// execute starts the command and follows it to its end.
func (t *task) execute(ctx context.Context, spec *Spec) *berth.Exit {
	if t.stop = t.o.Control.take(); t.stop != nil {
		return t.cut(nil)
	}
	var err error
	if spec.log, err = t.openLog(); err != nil {
		return fail("staging", fmt.Errorf("opening the log: %w", err))
	}
	defer closeLog(spec.log)
	boxed := spec.env != nil && spec.env.Container != nil
	if !boxed { // a container engine limits by itself
		if spec.cgroup, err = newCgroup(t.l, t.unique()); err != nil {
			t.warn("its limits are not enforced: " + strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		t.warnUnboxed()
		defer func() { t.tidy(ctx, spec.cgroup) }()
	}
	if err := t.noteTrees(); err != nil {
		return fail("staging", err)
	}
	if err := t.keep(Mark{Step: StepExec}); err != nil {
		return fail("staging", fmt.Errorf("keeping the state of the task: %w", err))
	}
	if t.stdin, err = t.openStdin(spec); err != nil {
		return t.cut(fail("command", err))
	}
	defer t.stdin.close()
	w := newWaker()
	var r running
	if boxed {
		r, err = t.startContainer(ctx, spec)
	} else {
		r, err = t.startProcess(spec)
	}
	if err == nil {
		t.startServices(ctx, spec, r)
	}
	t.room.close() // the mounts are the command's now
	if err != nil {
		return t.cut(fail("command", err))
	}
	t.times.Started = time.Now()
	t.stdin.begin(ctx, r)
	return t.follow(ctx, r, w)
}

// azureShm is what Azure's clients send when nobody asked for shared memory.
const azureShm = "2g"

// warnUnboxed says what a command asks for in vain because it does not run in a container.
func (t *task) warnUnboxed() {
	if t.l.ShmSize != "" && t.l.ShmSize != azureShm {
		t.warn("resources.shm_size has no effect: the command does not run in a container, and has the shared memory of its machine")
	}
	if len(t.l.DockerArgs) > 0 {
		t.warn("resources.docker_args has no effect: the command does not run in a container")
	}
}

// tidy removes the groups of a command that is over, and what is left in them. One that is only let
// go of runs on in them.
func (t *task) tidy(ctx context.Context, c *cgroup) {
	if ctx.Err() != nil {
		c.release()
		return
	}
	c.remove()
}

// adopt follows a command that an earlier runner started.
func (t *task) adopt(ctx context.Context) *berth.Exit {
	defer t.tidy(ctx, openCgroup(t.l, t.unique()))
	defer t.holdTrees()()
	r, exit := t.find(ctx)
	if exit != nil {
		if t.grouped() { // its launcher may have come to its end
			exit, _ = t.groupExit(exit, false)
		}
		inspection := t.inspect(ctx, func() {})
		defer inspection.close()
		return t.judge(ctx, exit, inspection)
	}
	if t.times.Started.IsZero() {
		t.times.Started = time.Now()
	}
	return t.follow(ctx, r, newWaker())
}

// watchOutput watches the log for the first output, if that can be done.
func (t *task) watchOutput(w *waker) *filewatch.Watch {
	if t.o.Watch == nil || !t.times.FirstOutput.IsZero() {
		return nil
	}
	x, err := t.o.Watch.AddFunc(t.logPath(), func() { w.ring(eventOutput) })
	if err != nil {
		t.o.Log.Warn("no notice of the first output", "task", t.l.Task, "err", err)
	}
	return x
}

func lost(reason string) *berth.Exit {
	return &berth.Exit{Code: -1, Cause: "lost", Reason: reason}
}

// follow watches over a running command until it has ended.
func (t *task) follow(ctx context.Context, r running, w *waker) *berth.Exit {
	t.running = r
	if err := t.keep(r.mark()); err != nil {
		t.o.Log.Error("state of a running task not kept", "task", t.l.Task, "err", err)
	}
	t.report(berth.TaskRunning, "running", func(r *berth.Report) { r.Staged = t.staged() })
	defer t.startShipping(ctx)()
	through := t.startThrough(ctx, func() { w.ring(eventThrough) })
	defer through.close()

	t.o.Control.OnStop(func() { w.ring(eventStop) })
	defer t.o.Control.OnStop(nil)
	defer context.AfterFunc(ctx, func() { w.ring(eventAbandon) })()
	if t.l.Timeout > 0 {
		defer w.after(time.Until(t.times.Started.Add(t.l.Timeout)), eventLimit).Stop()
	}
	timer := w.after(watchFirst, eventWatch)
	defer func() {
		timer.Stop()
		t.first.Close()
	}()
	end := ending{r: r, w: w}
	defer end.close()
	inspection := t.inspect(ctx, func() { w.ring(eventAltered) })
	defer inspection.close()
	services := t.watchServices(ctx, func() { w.ring(eventService) })
	defer services.close()
	for {
		ended, err := r.wait(ctx, w)
		if ctx.Err() != nil {
			return nil
		}
		if ended {
			if err != nil {
				t.o.Log.Error("waiting for a command", "task", t.l.Task, "err", err)
			}
			return t.judge(ctx, t.over(ctx, r), inspection)
		}
		e := w.take()
		if e&eventWatch != 0 {
			t.first = t.watchOutput(w)
			timer = w.after(sampleFirst-watchFirst, eventSample)
		}
		if e&(eventWatch|eventOutput) != 0 && t.times.FirstOutput.IsZero() && t.look() {
			t.first.Close() // a command that writes much would be slowed by the notices
			t.report(berth.TaskRunning, "running", nil)
		}
		if e&eventStop != 0 {
			if s := t.o.Control.take(); s != nil {
				if t.stop == nil {
					t.stop = s
				}
				end.begin(t.grace(s.Grace))
			}
		}
		if e&eventAltered != 0 {
			if t.stop == nil {
				t.stop = &Stop{Cause: causeAltered, Why: inspection.wrong}
			}
			end.begin(t.grace(0))
		}
		if e&eventThrough != 0 {
			through.report()
		}
		if e&eventLimit != 0 {
			if t.stop == nil {
				t.stop = &Stop{Cause: "timeout", Why: fmt.Sprintf("it ran longer than its limit of %v", t.l.Timeout)}
			}
			end.begin(t.grace(0))
		}
		if e&eventGrace != 0 {
			end.again()
		}
		if e&eventService != 0 {
			t.report(berth.TaskRunning, "running", func(r *berth.Report) { r.Services = services.all() })
		}
		if e&eventSample != 0 {
			t.lookAtDisk()
			if u, ok := r.sample(time.Now()); ok {
				t.peak = peaks(t.peak, u)
				t.report(berth.TaskRunning, "running", func(r *berth.Report) { r.Usage = &u })
			}
			timer.Reset(sampleAgain(time.Since(t.times.Started)))
		}
	}
}

func (t *task) grace(asked time.Duration) time.Duration {
	switch {
	case asked > 0:
		return asked
	case t.l.Grace > 0:
		return t.l.Grace
	}
	return defaultGrace
}

// over says how an ended command went.
func (t *task) over(ctx context.Context, r running) *berth.Exit {
	t.lookAtDisk()
	status, known := r.ended(ctx)
	if ctx.Err() != nil {
		return nil
	}
	t.stdin.drain()
	if t.stop != nil || t.grouped() || len(t.l.Services) > 0 {
		r.kill() // those that outlive what was asked to end, or their launcher; services
	}
	if t.times.FirstOutput.IsZero() {
		t.look()
	}
	exit := status.exit()
	if t.grouped() {
		exit, known = t.groupExit(exit, known)
	}
	if !known {
		if t.stop != nil {
			return &berth.Exit{Code: -1, Cause: t.stop.cause(), Reason: t.stop.why()}
		}
		return lost("its exit code is not known: the processes that could have learnt it were killed while it ran")
	}
	if status.CPUSeconds > 0 || status.MaxRSS > 0 {
		t.peak = peaks(t.peak, berth.Usage{At: time.Now(), CPUSeconds: status.CPUSeconds, MemoryBytes: status.MaxRSS})
	}
	if exit.OOM && exit.Code != 0 {
		exit.Reason = "the kernel ended a process of the command for want of memory"
		if t.l.Memory > 0 {
			exit.Reason = fmt.Sprintf("the command needed more memory than its limit of %d MiB, and the kernel ended a process of it", t.l.Memory>>20)
		}
	}
	if exit.Code != 0 && strings.HasPrefix(exit.Reason, failed(exit.Code)) && !t.grouped() {
		if line := group.LastError(t.logPath(), exit.Code); line != "" {
			exit.Reason = failed(exit.Code) + ": " + line
		}
	}
	if t.stop != nil {
		exit.Cause, exit.Reason = t.stop.cause(), t.stop.why()
	}
	return exit
}

// ending is the way of a command to its end: asked first, killed when the grace is over, and again
// until it is gone.
type ending struct {
	r     running
	w     *waker
	timer *time.Timer
	grace time.Duration
}

// begin asks the command to end. Asking again with a shorter grace shortens it.
func (e *ending) begin(grace time.Duration) {
	if e.timer != nil {
		if grace < e.grace {
			e.grace = grace
			e.timer.Reset(grace)
		}
		return
	}
	e.grace = grace
	e.timer = e.w.after(grace, eventGrace)
	e.r.ask()
}

func (e *ending) again() {
	e.r.kill()
	e.timer.Reset(100 * time.Millisecond)
}

func (e *ending) close() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

// look notes when the first output came, from the log itself, if it has.
func (t *task) look() bool {
	info, err := os.Lstat(t.logPath())
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 || !t.times.FirstOutput.IsZero() {
		return false
	}
	t.times.FirstOutput = info.ModTime()
	if t.times.FirstOutput.Before(t.times.Started) { // a file system's clock is some milliseconds late
		t.times.FirstOutput = t.times.Started
	}
	return true
}

// lookAtDisk notes that there is no room for the log. The command writes it by itself, so nobody
// else is told what could not be written.
func (t *task) lookAtDisk() {
	t.holes = t.holes || DiskFull(filepath.Dir(t.logPath()))
}

func (t *task) logPath() string {
	if t.l.LogFile != "" {
		return t.l.LogFile
	}
	return filepath.Join(t.o.Dir, "std_log.txt")
}

// openLog opens the file that takes the output. It is opened for appending: an attempt that shares
// it adds to it, and two writers do not overwrite each other.
func (t *task) openLog() (int, error) {
	fd, err := t.o.OpenLog(t.logPath())
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(t.logPath()), 0o700); err != nil {
			return -1, err
		}
		fd, err = t.o.OpenLog(t.logPath())
	}
	return fd, err
}
