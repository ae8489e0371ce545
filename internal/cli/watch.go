package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// watcher shows a job until it has ended: its log on standard output as it is, what happens to it
// on standard error.
type watcher struct {
	s    *session
	c    *client.Client
	job  string
	rev  berth.Rev // events after this one are news
	log  client.LogOptions
	line *progress
	az   *azFrame // by az's manners
	raw  bool     // the output is that of the user's own terminal, and passes as it is

	mu     sync.Mutex
	wrote  bool
	out    io.Writer // once it wrote
	open   bool      // the last byte written was not the end of a line
	warned map[string]bool
	told   string
	shown  string // the log the server chose, if it did
}

// quietStart is how long a job may take to its first output before a plain terminal is told what it
// waits for.
const quietStart = 700 * time.Millisecond

// watch follows the job and returns it when it has ended.
func (w *watcher) watch(ctx context.Context) (*client.Job, error) {
	w.warned = map[string]bool{}
	if w.line == nil {
		w.line = w.s.newProgress()
	}
	defer w.line.stop()
	events, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { w.events(events) })
	var err error
	if w.az, err = w.s.frame(ctx, w.c, w.job); err != nil {
		stop()
		wg.Wait()
		return nil, err
	}
	w.log.Chosen = func(name string) { w.shown = name }
	j, err := w.c.Follow(ctx, w.job, w.log, w, func(err error) {
		w.line.aside(func() { w.s.away(err) })
	})
	stop()
	wg.Wait()
	w.line.stop()
	_ = flush(w.out)
	if w.open && w.s.out.tty {
		fmt.Fprintln(w.s.err)
	}
	if err == nil {
		w.failed(ctx, j)
		w.lastWarnings(ctx)
	}
	return j, err
}

// away tells that a server is waited for.
func (s *session) away(err error) {
	var lost *client.Unreachable
	if errors.As(err, &lost) && lost.Stopped() {
		s.warn("%s has stopped; the job goes on, and so does its output here once `berth up` has started the server again", lost.Server)
		return
	}
	s.warn("%v; waiting for it to come back", err)
}

// failedLines is how much of the log of a process that failed is shown after that of the first one.
const failedLines = 100

// failed shows the log of the process that ended a job of several. Those who look on follow the
// first one's.
func (w *watcher) failed(ctx context.Context, j *client.Job) {
	exit := j.State().Exit
	if exit == nil || exit.OK() || exit.Process == 0 || exit.Log == "" || exit.Log == w.shown || w.log.Name != "" {
		return
	}
	w.s.say("the log of the process that failed, %s:", exit.Log)
	if _, err := w.c.Log(ctx, w.job, client.LogOptions{Name: exit.Log, Tail: failedLines}, w.s.safe()); err != nil {
		w.s.warn("it cannot be shown: %v", err)
	}
}

// Write takes log bytes.
func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.wrote {
		w.wrote, w.out = true, w.s.safe()
		if w.raw {
			w.out = w.s.out
		}
		w.line.set("")
		w.az.log(w.shown)
	}
	if len(b) > 0 {
		w.open = b[len(b)-1] != '\n'
	}
	if !w.line.active() {
		return w.out.Write(b)
	}
	var n int
	var err error
	w.line.aside(func() { n, err = w.out.Write(b) })
	return n, err
}

var _ io.Writer = (*watcher)(nil)

// events tells what happens to the job. On a pipe it waits a little first: most jobs have begun by
// then, and need no telling.
func (w *watcher) events(ctx context.Context) {
	if !w.line.active() {
		t := time.NewTimer(quietStart)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
	err := w.c.Watch(ctx, w.job, w.rev, func(e berth.Event) error {
		w.tell(e, w.queue(ctx, e))
		return nil
	})
	if ctx.Err() == nil && w.s.verbose {
		w.line.aside(func() { w.s.warn("no progress is shown: %v", err) })
	}
}

// queue is how many wait before a job that has begun to wait, as words; "" for other events.
func (w *watcher) queue(ctx context.Context, e berth.Event) string {
	var d struct{ Status berth.JobStatus }
	if e.Type != berth.EventJobStatus || json.Unmarshal(e.Data, &d) != nil || d.Status != berth.Queued {
		return ""
	}
	x, err := w.c.Explain(ctx, w.job)
	if err != nil || x.Status != berth.Queued {
		return ""
	}
	return fmt.Sprintf("; %d ahead", x.Ahead)
}

// tell shows one event.
func (w *watcher) tell(e berth.Event, more string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Type == berth.EventJobWarning {
		w.warning(e)
		return
	}
	text := phase(e)
	if text == "" || text == w.told {
		return
	}
	w.told = text
	text += more
	if w.wrote {
		return // the log speaks for itself
	}
	if w.line.active() {
		w.line.set("%s", text)
	} else {
		w.s.say("%s: %s", w.job, text)
	}
}

func (w *watcher) warning(e berth.Event) {
	if e.Reason == "" || w.warned[e.Reason] {
		return
	}
	w.warned[e.Reason] = true
	w.line.aside(func() { w.s.warn("%s", e.Reason) })
}

// lastWarnings shows those that came while nobody listened.
func (w *watcher) lastWarnings(ctx context.Context) {
	if w.s.quiet || w.log.Offset > 0 {
		return
	}
	for _, e := range warningsOf(ctx, w.c, w.job) {
		w.warning(e)
	}
}

// warningsOf are what a job's owner should know about it. An error means none: what is shown beside
// them matters more.
func warningsOf(ctx context.Context, c *client.Client, job string) []berth.Event {
	events, _, err := c.Events(ctx, job, 0)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(events, func(e berth.Event) bool { return e.Type != berth.EventJobWarning || e.Reason == "" })
}

// warnOfJob shows a job's warnings, each once.
func (s *session) warnOfJob(ctx context.Context, c *client.Client, job string) {
	seen := map[string]bool{}
	for _, e := range warningsOf(ctx, c, job) {
		if !seen[e.Reason] {
			seen[e.Reason] = true
			s.warn("%s", e.Reason)
		}
	}
}

// phase is what an event says about how far a job is, in a few words; "" when it says nothing new.
func phase(e berth.Event) string {
	var d struct{ Status, State, Phase, Detail string }
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	name, detail := "", d.Detail
	switch {
	case e.Type == berth.EventTaskPhase, e.Type == berth.EventTaskState && d.Phase != "":
		name = d.Phase
	case e.Type == berth.EventTaskState && d.State != string(berth.TaskDone):
		name = d.State
	case e.Type == berth.EventJobStatus && !berth.JobStatus(d.Status).Terminal():
		name = strings.ToLower(d.Status)
	}
	if name == "" {
		return ""
	}
	if detail == "" {
		detail = e.Reason
	}
	if detail != "" && detail != name {
		return name + ": " + detail
	}
	return name
}

// summary is the one line about a job that has ended, and where its time went.
func (s *session) summary(j *client.Job) {
	st := j.State()
	t := st.Times
	mark, color, word := "✓", green, "completed"
	switch j.Status() {
	case berth.Failed:
		mark, color, word = "✗", red, "failed"
	case berth.Canceled:
		mark, color, word = "■", yellow, "was canceled"
	}
	line := j.Name + " " + word
	if !t.Ended.IsZero() && !t.Submitted.IsZero() {
		line += " in " + span(t.Ended.Sub(t.Submitted))
	}
	if j.Status() != berth.Completed {
		if st.Reason != "" {
			line += ": " + st.Reason
		}
	}
	if !s.err.tty {
		mark = ""
	} else {
		mark = s.paint(s.err, color, mark) + " "
	}
	s.say("%s%s", mark, line)
	if strings.Contains(st.Reason, "EOFError") { // of Python's input()
		s.hint("a job has no standard input; `berth run -i` gives it this terminal, or what is piped in")
	}
	if s.err.tty || s.verbose {
		if w := waterfall(t, st.Usage); w != "" {
			s.hint("  %s", w)
		}
	}
}

// waterfall is where a job's time went, phase by phase, and its peaks.
func waterfall(t berth.Waterfall, u berth.Usage) string {
	var parts []string
	step := func(name string, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() && !to.Before(from) {
			parts = append(parts, name+" "+span(to.Sub(from)))
		}
	}
	first := func(times ...time.Time) time.Time {
		for _, x := range times {
			if !x.IsZero() {
				return x
			}
		}
		return time.Time{}
	}
	step("queued", t.Submitted, first(t.Placed, t.Staging, t.Started))
	step("staging", t.Staging, first(t.Environment, t.Started))
	step("environment", t.Environment, t.Started)
	step("first output", t.Started, t.FirstOutput)
	step("run", t.Started, first(t.Uploading, t.Ended))
	step("outputs", t.Uploading, t.Ended)
	step("total", t.Submitted, t.Ended)
	if u.CPUPercent > 0 {
		parts = append(parts, fmt.Sprintf("peak CPU %.0f %%", u.CPUPercent))
	}
	if u.MemoryBytes > 0 {
		parts = append(parts, "peak memory "+size(u.MemoryBytes))
	}
	return strings.Join(parts, " · ")
}

// nextSteps are the commands people want after a submit.
func (s *session) nextSteps(name string) {
	if s.format.az {
		return
	}
	s.hint("  berth logs -f %s\n  berth explain %s\n  berth job cancel -n %s", name, name, name)
}

// detached tells how to come back to a job after Ctrl-C.
func (s *session) detached(name string) error {
	s.say("\nstopped following %s; the job keeps running", name)
	s.hint("  berth logs -f %s          follow it again\n  berth job cancel -n %s    end it", name, name)
	return exitError(exitInterrupted)
}
