package track

import (
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/track/points"
)

// What is known of experiments, runs and models, and the latest point of each series, is kept in
// memory. Who could fill it would end the server, for everybody, and again at each start: it is
// bounded for all workspaces together. Where the bound is reached nothing grows in those that have
// more than an equal share. What there is can be read, ended and deleted, and series go on.

// What is counted, about as much as was measured, and rather too much.
const (
	memoryOfEntity = 1536 // bytes, and as many again as its document has, twice
	memoryOfSeries = 320
)

func memoryOf(e entity) int64 { return memoryOfEntity + 2*int64(e.document().size) }

// Metrics writes how much memory all workspaces take, and may take.
func (s *Service) Metrics(w *metrics.Writer) {
	w.One("berth_tracking_memory_bytes", metrics.Gauge, "Memory that is counted for runs, models and series of points.", float64(s.memory.Load()))
	w.One("berth_tracking_memory_limit_bytes", metrics.Gauge, "What that may be at most, 0 for no limit.", float64(s.MaxMemory))
}

// measure counts the memory of a workspace again.
func (w *workspace) measure() {
	w.mu.RLock()
	now := w.index.memory
	w.mu.RUnlock()
	if w.points != nil {
		now += memoryOfSeries * int64(w.points.Series())
	}
	w.s.memory.Add(now - w.memory.Swap(now))
}

// unmeasure takes a workspace that is closed out of the count.
func (w *workspace) unmeasure() { w.s.memory.Add(-w.memory.Swap(0)) }

// mayRemember refuses what would take more memory.
func (w *workspace) mayRemember() error {
	s := w.s
	if s.MaxMemory == 0 || s.memory.Load() < s.MaxMemory {
		return nil
	}
	s.mu.Lock()
	share := s.MaxMemory / int64(max(1, len(s.spaces)))
	s.mu.Unlock()
	if w.memory.Load() < share {
		return nil
	}
	return refuse(exhausted, "The server keeps what it knows of runs and models in memory, up to %d MiB, of which this workspace has %d MiB. "+
		"Delete runs, then remove them with `berth storage clean --kind metrics`; or ask an administrator to raise tracking_memory_bytes.",
		s.MaxMemory>>20, w.memory.Load()>>20)
}

// mayGrow refuses what makes runs, experiments or models larger.
func (c *call) mayGrow() error {
	if err := c.mayRemember(); err != nil {
		return err
	}
	return c.mayStore()
}

// mayBegin refuses points of series that are not there yet.
func (w *workspace) mayBegin(entries []points.Entry) error {
	err := w.mayRemember()
	if err == nil {
		return nil
	}
	for i := range entries {
		if _, known := w.points.Last(entries[i].Owner, entries[i].Key); !known {
			return err
		}
	}
	return nil
}
