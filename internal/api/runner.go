package api

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/storage/entra"
	"github.com/berthml/berth/internal/store"
)

// runnerService serves the calls of runners: reports of their tasks, and logs.
type runnerService struct {
	db        *store.DB
	log       *slog.Logger
	blobs     *blob.Store
	authority *auth.Authority
	samples   *samples
	requests  *requests
	gate      *gate
	front     *Server
	programs  programs
	// principals obtains keys for datastores that a service principal opens.
	principals *entra.Client
	relays     relays
}

// reports takes what runners say of their tasks.
func (s *runnerService) reports(c *call) error {
	body, err := readReports(c.w, c.r)
	if err != nil {
		return err
	}
	answer, err := s.report(c.ctx(), body, time.Now())
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, answer)
}

// delivery is the answer to reports: the tasks that should end, and those that are not there or not
// the sender's.
type delivery struct {
	Stop    []berth.TaskID `json:"stop"`
	Unknown []berth.TaskID `json:"unknown"`
}

// deliver takes reports. Each carries its own task's token; the whole batch is one transaction, but
// for samples that can wait.
func (s *runnerService) deliver(ctx context.Context, rs []berth.Report, now time.Time) (d delivery, err error) {
	known := rs[:0]
	var refused []berth.TaskID
	for _, r := range rs {
		id, err := s.authority.Keys.CheckTask(r.Token, now)
		if err != nil || id != r.Task {
			refused = append(refused, r.Task)
			continue
		}
		known = append(known, r)
	}
	known, d.Stop = s.samples.take(known, now)
	if len(known) > 0 {
		var stop []berth.TaskID
		if stop, d.Unknown, err = s.record(ctx, known, now); err != nil {
			return d, err
		}
		d.Stop = append(d.Stop, stop...)
	}
	d.Unknown = append(d.Unknown, refused...)
	return d, nil
}

// record writes reports, and says which of their tasks should end and which are not there.
func (s *runnerService) record(ctx context.Context, rs []berth.Report, now time.Time) (stop, unknown []berth.TaskID, err error) {
	var tasks map[berth.TaskID]*berth.Task
	err = s.db.Update(ctx, func(tx *store.Tx) error {
		stop, unknown = stop[:0], unknown[:0]
		tasks = map[berth.TaskID]*berth.Task{}
		for _, r := range rs {
			t, seen := tasks[r.Task]
			if !seen {
				var err error
				t, err = tx.Task(r.Task)
				switch {
				case berth.CodeOf(err) == berth.NotFound:
					t = nil
					unknown = append(unknown, r.Task)
				case err != nil:
					return err
				case t.State != berth.TaskDone:
					s.samples.peaks(t)
				}
				tasks[r.Task] = t
			}
			if t != nil {
				applyReport(tx, t, r)
			}
		}
		for _, t := range tasks {
			if t == nil {
				continue
			}
			if t.Stop && t.State != berth.TaskDone {
				stop = append(stop, t.ID)
			}
			if err := tx.SaveTask(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.samples.note(tasks, now)
	}
	return stop, unknown, err
}

// applyReport moves a task on. States only go forward, so a report that comes twice or late changes
// nothing.
func applyReport(tx *store.Tx, t *berth.Task, r berth.Report) {
	if t.State == berth.TaskDone {
		return
	}
	t.Seen = r.At
	if r.Times.FirstOutput.IsZero() {
		r.Times.FirstOutput = r.FirstOutput
	}
	addTimes(&t.Times, r.Times, r.At, tx.Now())
	if r.Usage != nil {
		peak(&t.Usage, *r.Usage)
	}
	// A runner that was killed may repeat itself, and may give a number out again: what only moves
	// forward is taken in any case, what people read is taken once.
	again := r.Seq <= t.Seq
	t.Seq = max(t.Seq, r.Seq)
	if r.Warning != "" && !again {
		tx.Emit(taskEvent(t, berth.EventJobWarning, r.Warning, nil))
	}
	if n := len(r.Kept); n > 0 {
		t.Kept = r.Kept[:min(n, maxKept)]
	}
	if r.Services != nil && !again {
		noteServices(tx, t, r.Services)
	}
	if r.Exit != nil {
		t.Exit = r.Exit
		r.State = berth.TaskDone
	}
	switch {
	case r.State != "" && t.State.Before(r.State):
		reason := stateReason(r)
		if r.Staged != "" && t.State.Before(berth.TaskRunning) && r.Exit == nil {
			reason += "; " + r.Staged
		}
		t.State, t.Why = r.State, reason
		tx.Emit(taskEvent(t, berth.EventTaskState, t.Why, map[string]any{"task": t.ID, "state": t.State, "phase": r.Phase, "at": r.At, "exit": r.Exit}))
	case r.Usage != nil:
		tx.Emit(usageEvent(t, r))
	case r.Detail != "":
		t.Why = r.Detail
		tx.Emit(taskEvent(t, berth.EventTaskPhase, r.Detail, map[string]any{"task": t.ID, "phase": r.Phase, "detail": r.Detail, "at": r.At}))
	}
}

// maxKept is of how many outputs a task it is recorded that something was sent.
const maxKept = 100

func stateReason(r berth.Report) string {
	switch {
	case r.Exit != nil && r.Exit.Reason != "":
		return r.Exit.Reason
	case r.Detail != "":
		return r.Detail
	}
	switch r.State {
	case berth.TaskStarting:
		return "the runner prepares it"
	case berth.TaskRunning:
		return "the command runs"
	case berth.TaskEnding:
		return "the command ended; outputs are being kept"
	case berth.TaskDone:
		return "it is over"
	}
	return ""
}

func taskEvent(t *berth.Task, typ, reason string, data map[string]any) berth.Event {
	e := berth.Event{Workspace: t.Workspace, Subject: "jobs/" + t.Job, Type: typ, Reason: reason}
	if data != nil {
		if b, err := json.Marshal(data); err == nil {
			e.Data = b
		}
	}
	return e
}

// addTimes adds the times that a runner reported at a time of its clock and the task does not have
// yet. What its clock says and cannot be is brought between the phase before and now, so that no
// phase takes less than nothing: the clock of its machine may be another one, or may have been set.
func addTimes(have *berth.Waterfall, told berth.Waterfall, at, now time.Time) {
	var off time.Duration
	if at.Before(have.Placed) || at.Sub(now) > clockTolerance {
		off = now.Sub(at)
	}
	last := have.Placed
	for _, p := range []struct {
		have *time.Time
		told time.Time
	}{
		{&have.Staging, told.Staging},
		{&have.Environment, told.Environment},
		{&have.Started, told.Started},
		{&have.FirstOutput, told.FirstOutput},
		{&have.Uploading, told.Uploading},
		{&have.Ended, told.Ended},
	} {
		if p.have.IsZero() && !p.told.IsZero() {
			*p.have = p.told.Add(off)
			if p.have.After(now) {
				*p.have = now
			}
			if p.have.Before(last) {
				*p.have = last
			}
		}
		if p.have.After(last) {
			last = *p.have
		}
	}
}

// clockTolerance is how far the clock of a runner may be ahead of the server's without being taken
// for another one.
const clockTolerance = 2 * time.Second

// peak keeps the largest of each figure.
func peak(a *berth.Usage, b berth.Usage) {
	a.At = b.At
	a.CPUSeconds = max(a.CPUSeconds, b.CPUSeconds)
	a.CPUPercent = max(a.CPUPercent, b.CPUPercent)
	a.MemoryBytes = max(a.MemoryBytes, b.MemoryBytes)
	a.ReadBytes = max(a.ReadBytes, b.ReadBytes)
	a.WriteBytes = max(a.WriteBytes, b.WriteBytes)
	a.NetRxBytes = max(a.NetRxBytes, b.NetRxBytes)
	a.NetTxBytes = max(a.NetTxBytes, b.NetTxBytes)
	a.GPUPercent = max(a.GPUPercent, b.GPUPercent)
	a.GPUMemory = max(a.GPUMemory, b.GPUMemory)
}

// appendLog takes log bytes from a runner that does not share our disk. Bytes are accepted only at
// the present end, so a repeated or lost request cannot double or tear the log; the answer says
// where the end is.
func (s *runnerService) appendLog(c *call) error {
	id := berth.TaskID(c.r.PathValue("id"))
	if c.who.Task != id {
		return berth.Errorf(berth.Denied, "this token does not open task %s", id)
	}
	name := c.q.Get("name")
	if name == "" {
		name = stdLog
	}
	if !strings.HasPrefix(name, "user_logs/") || strings.Contains(name, "..") {
		return berth.Errorf(berth.Invalid, "a log's name begins with user_logs/, not %q", name)
	}
	offset, err := strconv.ParseInt(c.q.Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		return berth.Errorf(berth.Invalid, "offset=%s is not a number of bytes", c.q.Get("offset"))
	}
	var rel string
	err = s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		rel, err = logFile(tx, id, name)
		return err
	})
	if err != nil {
		return err
	}
	f, err := s.blobs.OpenLive(rel, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close() // synced below
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size != offset {
		return c.send(http.StatusConflict, map[string]any{"size": size})
	}
	n, err := io.Copy(f, http.MaxBytesReader(c.w, c.r.Body, 64<<20))
	if err == nil || n > 0 {
		err = f.Sync()
	}
	if err != nil {
		return berth.Errorf(berth.Unavailable, "the log could not be written: %w", err)
	}
	return c.send(http.StatusOK, map[string]any{"size": size + n})
}

// logFile is where a log of a task that has not ended is, below the directory of blobs.
func logFile(tx *store.Tx, id berth.TaskID, name string) (rel string, err error) {
	t, err := tx.Task(id)
	if err != nil {
		return "", err
	}
	if t.State == berth.TaskDone {
		return "", berth.Errorf(berth.Gone, "task %s is over, and its token with it", id)
	}
	own, err := locate.StorageOf(tx, t.Workspace)
	if err != nil {
		return "", err
	}
	b, err := tx.Blob(own.Artifacts, locate.ArtifactPath(t.Job)+"/"+name)
	if err == nil && !strings.HasPrefix(b.Live, "logs/") {
		err = berth.Errorf(berth.Invalid, "%s is not a log that the runner of job %s writes", name, t.Job)
	}
	if err != nil {
		return "", err
	}
	return b.Live, nil
}
