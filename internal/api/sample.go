package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

const (
	// sampleTime is how long samples wait for each other.
	sampleTime = time.Second
	// sampleSave is how often the peaks of a task are written: its last report has them anyway.
	sampleSave = time.Minute
	// sampleLife is how long it is remembered at least that a task runs.
	sampleLife = 5 * time.Minute
	// sampleBatch is how many samples one update writes, so that others have their turn between
	// two.
	sampleBatch = 100
)

// samples are what tasks use, as their runners tell again and again. One changes no state and the
// next takes its place, so it is not worth a commit of its own: where many come they are kept a
// moment, and become events together. One that comes alone is written at once.
type samples struct {
	wake chan struct{} // something waits

	mu      sync.Mutex
	kept    bool // somebody writes what waits
	last    time.Time
	waiting map[berth.TaskID]berth.Report
	// live are the tasks that run as far as the store knows. Those of which nothing was written
	// since turned are in before, and then forgotten.
	live, before map[berth.TaskID]*life
	turned       time.Time
}

// life is a task that runs.
type life struct {
	workspace, job string
	stop           bool // it should end
	saved          time.Time
	peak           berth.Usage // since saved
}

func newSamples() *samples {
	return &samples{wake: make(chan struct{}, 1), waiting: map[berth.TaskID]berth.Report{}, live: map[berth.TaskID]*life{}}
}

// sample says that a report tells nothing but what a running task uses.
func sample(r berth.Report) bool {
	return r.Usage != nil && r.State == berth.TaskRunning && r.Exit == nil && r.Warning == "" && r.Detail == "" && r.Kept == nil && r.Services == nil
}

// life is what is remembered of a task, nil when nothing is. The mutex is held.
func (s *samples) life(id berth.TaskID) *life {
	if l := s.live[id]; l != nil {
		return l
	}
	return s.before[id]
}

// take keeps the samples among reports, and returns those reports that have to be written now. stop
// are the tasks of kept ones that should end.
func (s *samples) take(rs []berth.Report, now time.Time) (write []berth.Report, stop []berth.TaskID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	alone := len(s.waiting) == 0 && now.Sub(s.last) >= sampleTime
	for _, r := range rs {
		if l := s.life(r.Task); s.kept && l != nil && !alone && sample(r) {
			s.waiting[r.Task] = r
			if l.stop {
				stop = append(stop, r.Task)
			}
			continue
		}
		if w, ok := s.waiting[r.Task]; ok { // in the order they came
			write = append(write, w)
			delete(s.waiting, r.Task)
		}
		if write = append(write, r); sample(r) {
			s.last = now
		}
	}
	if len(s.waiting) > 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return write, stop
}

// note remembers what the store knows of tasks after reports were written. Those it does not know
// at all are nil.
func (s *samples) note(tasks map[berth.TaskID]*berth.Task, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.turned) > sampleLife {
		s.live, s.before, s.turned = map[berth.TaskID]*life{}, s.live, now
	}
	for id, t := range tasks {
		delete(s.before, id)
		if t != nil && t.State == berth.TaskRunning {
			s.live[id] = &life{workspace: t.Workspace, job: t.Job, stop: t.Stop, saved: now}
		} else {
			delete(s.live, id)
		}
	}
}

// peaks adds what is remembered of a task to its peaks.
func (s *samples) peaks(t *berth.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.life(t.ID); l != nil && l.peak != (berth.Usage{}) {
		peak(&t.Usage, l.peak)
	}
}

// due is when what waits should be written.
func (s *samples) due() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Add(sampleTime)
}

// keep begins or ends the keeping of samples.
func (s *samples) keep(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = on
}

// all takes what waits: samples to be written with their task, and events that are enough for the
// others.
func (s *samples) all(now time.Time) (write []berth.Report, tell []berth.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.waiting {
		l := s.life(id)
		if l == nil || now.Sub(l.saved) >= sampleSave {
			write = append(write, r)
			continue
		}
		peak(&l.peak, *r.Usage)
		tell = append(tell, usageEvent(&berth.Task{ID: id, Workspace: l.workspace, Job: l.job}, r))
	}
	clear(s.waiting)
	s.last = now
	return write, tell
}

func usageEvent(t *berth.Task, r berth.Report) berth.Event {
	return taskEvent(t, berth.EventTaskUsage, "", map[string]any{"task": t.ID, "usage": r.Usage})
}

// writeSamples writes the samples that wait until ctx ends, and those that wait then. Where it does
// not run each is written as it comes.
func (s *runnerService) writeSamples(ctx context.Context) error {
	s.samples.keep(true)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.samples.wake:
			timer.Reset(time.Until(s.samples.due()))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			s.samples.keep(false)
		}
		if err := s.flush(context.WithoutCancel(ctx)); err != nil {
			s.log.Warn("samples of tasks not written", "err", err)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// flush writes the samples that wait.
func (s *runnerService) flush(ctx context.Context) error {
	now := time.Now()
	write, tell := s.samples.all(now)
	for rs := range slices.Chunk(write, sampleBatch) {
		if _, _, err := s.record(ctx, rs, now); err != nil {
			return err
		}
	}
	for es := range slices.Chunk(tell, sampleBatch) {
		err := s.db.Update(ctx, func(tx *store.Tx) error {
			for _, e := range es {
				tx.Emit(e)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
