package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/filewatch"
)

// defaultGrace is what a process is given between SIGTERM and SIGKILL when nobody says.
const defaultGrace = 30 * time.Second

// execute starts the command and follows it to its end.
func (t *task) execute(ctx context.Context, spec *Spec) *berth.Exit {
	select {
	case s := <-t.o.Stop:
		t.stop = &s
		return t.cut(nil)
	default:
	}
	log, err := t.openLog()
	if err != nil {
		return fail("staging", fmt.Errorf("opening the log: %w", err))
	}
	defer closeLog(log)
	spec.Log = log
	if err := t.limit(spec); err != nil {
		return fail("command", err)
	}
	defer spec.cgroup.remove()
	if err := t.keep(Mark{Step: StepExec}); err != nil {
		return fail("staging", fmt.Errorf("keeping the state of the task: %w", err))
	}
	var first *filewatch.Watch
	if t.o.Watch != nil {
		if first, err = t.o.Watch.Add(t.logPath()); err != nil {
			t.o.Log.Warn("no notice of the first output", "task", t.l.Task, "err", err)
		}
	}
	p, err := start(spec)
	if err != nil {
		return fail("command", fmt.Errorf("starting %s: %w", spec.Path, err))
	}
	t.times.Started = time.Now()
	if err := t.keep(Mark{Step: StepStarted, PID: p.pid, Born: p.born}); err != nil {
		t.o.Log.Error("state of a running task not kept", "task", t.l.Task, "err", err)
	}
	t.report(berth.TaskRunning, "running", nil)
	return t.follow(ctx, p, spec.cgroup, first)
}

// adopt follows a process that an earlier runner started.
func (t *task) adopt(ctx context.Context) *berth.Exit {
	pid, b := t.o.Last.PID, t.o.Last.Born
	if t.o.Last.Step == StepExec {
		// It is not known whether the process was started. If it was and runs still, it carries the task's mark.
		pid, b = findMarked(t.l.Task)
		if pid == 0 {
			return lost("its runner was killed while it started the command, and the command's process is gone")
		}
		t.times.Started = time.Now()
		if err := t.keep(Mark{Step: StepStarted, PID: pid, Born: b}); err != nil {
			t.o.Log.Error("state of a running task not kept", "task", t.l.Task, "err", err)
		}
	}
	p := adopt(pid, b)
	if p == nil {
		// It is gone, and so is its id; what is left is the word of whoever waited for it.
		p = &process{pid: pid, born: b}
		return t.ended(ctx, p, nil)
	}
	t.report(berth.TaskRunning, "running", nil)
	cg := openCgroup(t.l.Task)
	defer cg.remove()
	var first *filewatch.Watch
	if t.o.Watch != nil && t.times.FirstOutput.IsZero() {
		first, _ = t.o.Watch.Add(t.logPath())
		t.look()
	}
	return t.follow(ctx, p, cg, first)
}

func lost(reason string) *berth.Exit {
	return &berth.Exit{Code: -1, Cause: "lost", Reason: reason}
}

// follow watches over a running process until it has ended.
func (t *task) follow(ctx context.Context, p *process, cg *cgroup, first *filewatch.Watch) *berth.Exit {
	defer p.close()
	gone := make(chan error, 1)
	go func() { gone <- p.wait(ctx) }() // ends with the process or with ctx, and this function outlives it

	var output <-chan struct{}
	if first != nil {
		defer func() { first.Close() }()
		output = first.C
	}
	var limit <-chan time.Time
	if t.l.Timeout > 0 {
		timer := time.NewTimer(time.Until(t.times.Started.Add(t.l.Timeout)))
		defer timer.Stop()
		limit = timer.C
	}
	sampler := newSampler(p, cg, t.l)
	ticks := time.NewTimer(sampleFirst)
	defer ticks.Stop()
	var ending ending
	defer ending.close()

	for {
		select {
		case err := <-gone:
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				t.o.Log.Error("waiting for a process", "task", t.l.Task, "pid", p.pid, "err", err)
			}
			return t.ended(ctx, p, cg)
		case <-output:
			output = nil
			first.Close()
			t.look()
			t.report(berth.TaskRunning, "running", nil)
		case s := <-t.o.Stop:
			if t.stop == nil {
				t.stop = &s
			}
			ending.begin(p, cg, t.l.Task, t.grace(s.Grace))
		case <-limit:
			limit = nil
			if t.stop == nil {
				t.stop = &Stop{Cause: "timeout", Why: fmt.Sprintf("it ran longer than its limit of %v", t.l.Timeout)}
			}
			ending.begin(p, cg, t.l.Task, t.grace(0))
		case <-ending.expired():
			ending.kill(p, cg, t.l.Task)
		case <-ticks.C:
			u := sampler.sample(time.Now())
			t.peak = peaks(t.peak, u)
			t.report(berth.TaskRunning, "running", func(r *berth.Report) { r.Usage = &u })
			ticks.Reset(sampleAgain(time.Since(t.times.Started)))
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

// ended clears up behind a process and says how it went.
func (t *task) ended(ctx context.Context, p *process, cg *cgroup) *berth.Exit {
	var status WaitStatus
	known := false
	if p.child {
		// Its id is its own until it is reaped, so the group can be swept without hitting a stranger's.
		killGroup(p.pid)
		var err error
		if status, err = p.reap(); err == nil {
			known = true
		} else {
			t.o.Log.Error("reaping", "task", t.l.Task, "pid", p.pid, "err", err)
		}
	} else if t.o.Status != nil {
		status, known = t.o.Status(ctx, p.pid, p.born)
	}
	if t.stop != nil {
		killTree(p, cg, t.l.Task)
	}
	if t.times.FirstOutput.IsZero() {
		t.look()
	}
	if !known {
		if t.stop != nil {
			return &berth.Exit{Code: -1, Cause: t.stop.cause(), Reason: t.stop.why()}
		}
		return lost("its process has ended, but the runner that could have learnt how was killed before")
	}
	t.peak = peaks(t.peak, berth.Usage{At: time.Now(), CPUSeconds: status.CPUSeconds, MemoryBytes: status.MaxRSS})
	exit := status.exit()
	exit.OOM = cg.oomKilled()
	if exit.OOM && exit.Code != 0 {
		exit.Reason = fmt.Sprintf("the command used more memory than its limit of %d MiB and the kernel ended it", t.l.Memory>>20)
	}
	if t.stop != nil {
		exit.Cause, exit.Reason = t.stop.cause(), t.stop.why()
	}
	return exit
}

// look notes when the first output came, from the log itself.
func (t *task) look() {
	info, err := os.Stat(t.logPath())
	if err == nil && info.Size() > 0 && t.times.FirstOutput.IsZero() {
		t.times.FirstOutput = info.ModTime()
	}
}

func (t *task) logPath() string {
	if t.l.LogFile != "" {
		return t.l.LogFile
	}
	return filepath.Join(t.o.Dir, "std_log.txt")
}

// openLog opens the file that takes the output. It is opened for appending: an attempt that shares it adds to it, and
// two writers do not overwrite each other.
func (t *task) openLog() (int, error) {
	fd, err := openAppend(t.logPath())
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(t.logPath()), 0o700); err != nil {
			return -1, err
		}
		fd, err = openAppend(t.logPath())
	}
	return fd, err
}
