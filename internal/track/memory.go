package track

import (
	"context"

	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/metrics"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track/points"
)

// What is known of experiments, runs and models, and the latest point of each series, is kept in
// memory. Who could fill it would end the server, for everybody, and again at each start: it is
// bounded for all workspaces together. Where the bound is reached nothing grows in those that have
// more than an equal share, and a little beyond it in none. What there is can be read, ended and
// deleted, and series go on.
//
// A job's own run is taken whatever there is: who makes jobs has other limits.

// What is counted, in bytes, rather too much.
const (
	memoryOfEntity = 1536 // and its document
	memoryOfPair   = 80   // of each parameter and tag, beside its text
	// sharing is what a workspace has at least that others share with.
	sharing = 1 << 20
)

func memoryOf(e entity) int64 {
	return memoryOfEntity + int64(e.document().size) + memoryOfPair*int64(e.pairs())
}

func (e *experiment) pairs() int  { return len(e.Tags) }
func (r *run) pairs() int         { return len(r.Params) + len(r.Tags) }
func (m *loggedModel) pairs() int { return len(m.Params) + len(m.Tags) }
func (m *registered) pairs() int  { return len(m.Tags) + len(m.Aliases) }
func (v *version) pairs() int     { return len(v.Tags) }
func (c *counters) pairs() int    { return 0 }

// counted counts an entity in the place of an old one; either may be nil.
func counted[T any, P interface {
	*T
	entity
}](x *index, old, now P) {
	if old != nil {
		x.memory -= memoryOf(old)
	}
	if now != nil {
		x.memory += memoryOf(now)
	}
}

// measure counts the memory of a workspace again.
func (w *workspace) measure() {
	w.mu.RLock()
	now := w.index.memory
	w.mu.RUnlock()
	if w.points != nil {
		now += w.points.Memory()
	}
	w.memory.Store(now)
}

// memory is what all workspaces take, and how many of them share it. s.mu is held.
func (s *Service) memory() (total int64, shares int) {
	add := func(n int64) {
		if total += n; n >= sharing {
			shares++
		}
	}
	for _, w := range s.spaces {
		add(w.memory.Load())
	}
	for id, n := range s.unread {
		if s.spaces[id] == nil && !s.gone[id] {
			add(n)
		}
	}
	return total, max(1, shares)
}

// estimate finds out, once, what the workspaces will take that nobody has used yet: their documents
// tell about how much.
func (s *Service) estimate() {
	unread := map[string]int64{}
	err := s.DB.View(context.Background(), func(tx *store.Tx) error {
		all, err := tx.All(store.Query{Kind: kindWorkspaces, Asc: true})
		if err != nil {
			return err
		}
		clear(unread)
		for _, d := range all {
			own, err := store.State[locate.Storage](d)
			if err != nil {
				return err
			}
			docs, bytes, err := tx.StateBytes(d.Name, Kinds()...)
			if err != nil {
				return err
			}
			if docs > 0 { // each change looks at all of these
				unread[own.ID] = int64(docs)*memoryOfEntity + 2*bytes
			}
		}
		return nil
	})
	if err != nil {
		s.Log.Warn("memory of workspaces that are not used yet is not counted", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = unread
}

// Metrics writes how much memory all workspaces take, and may take.
func (s *Service) Metrics(w *metrics.Writer) {
	s.mu.Lock()
	total, _ := s.memory()
	s.mu.Unlock()
	w.One("berth_tracking_memory_bytes", metrics.Gauge, "Memory that is counted for runs, models and series of points.", float64(total))
	w.One("berth_tracking_memory_limit_bytes", metrics.Gauge, "What that may be at most, 0 for no limit.", float64(s.MaxMemory))
}

// mayRemember refuses what would take more memory.
func (w *workspace) mayRemember() error {
	s, own := w.s, w.memory.Load()
	if s.MaxMemory == 0 {
		return nil
	}
	s.mu.Lock()
	total, shares := s.memory()
	s.mu.Unlock()
	if total < s.MaxMemory || total < s.MaxMemory/4*5 && own < s.MaxMemory/int64(shares) {
		return nil
	}
	return refuse(exhausted, "The server keeps what it knows of runs and models in memory, at most %.1f MB of it, of which this workspace has %.1f MB. "+
		"Delete runs, then remove them for good with `berth storage clean --kind metrics --older 0m --yes`; or ask an administrator to raise tracking_memory_bytes",
		float64(s.MaxMemory)/1e6, float64(own)/1e6)
}

// mayGrow refuses what makes runs, experiments or models larger.
func (c *call) mayGrow() error {
	if c.frees {
		return nil
	}
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
