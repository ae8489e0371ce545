package track

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Runs, logged models and experiments that were deleted long enough ago are removed for good: their
// files, their points, and their document last, so that what a crash leaves of one is found and
// removed the next time. The runs and models of a deleted experiment go before it.

// collectPause is how often it is looked for them.
const collectPause = time.Hour

// collectDue removes what was deleted long enough ago.
func (s *Service) collectDue(ctx context.Context) {
	n, err := s.Collect(ctx, time.Now().Add(-s.KeepDeleted))
	if err != nil && ctx.Err() == nil {
		s.Log.Error("deleted runs and models not removed", "err", err)
	}
	if n > 0 {
		s.Log.Info("deleted runs and models permanently removed", "count", n)
	}
}

// Collect removes the runs and logged models for good that were deleted before a time, in all
// workspaces. It returns how many they were. One that cannot be removed is left for the next time.
func (s *Service) Collect(ctx context.Context, before time.Time) (int, error) {
	var all []Workspace
	err := s.DB.View(ctx, func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Kind: kindWorkspaces})
		for _, d := range docs {
			ws, err := WorkspaceOf(d)
			if err != nil {
				s.Log.Error("deleted runs and models of a workspace not removed", "workspace", d.Name, "err", err)
				continue
			}
			all = append(all, ws)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	removed := 0
	for _, ws := range all {
		n, err := s.collect(ctx, ws, before)
		removed += n
		if ctx.Err() != nil {
			return removed, ctx.Err()
		}
		if err != nil {
			s.Log.Error("deleted runs and models of a workspace not removed", "workspace", ws.Of.Name, "err", err)
		}
	}
	return removed, nil
}

// collect removes the runs and models of a workspace. One that nobody uses is opened only for
// something to remove.
func (s *Service) collect(ctx context.Context, ws Workspace, before time.Time) (int, error) {
	s.mu.Lock()
	w := s.spaces[ws.ID]
	s.mu.Unlock()
	if w == nil || !w.loaded.Load() {
		if due, err := s.hasDue(ctx, ws, before); !due || err != nil {
			return 0, err
		}
	}
	w, err := s.open(ctx, ws)
	if err != nil {
		return 0, err
	}
	return w.collect(ctx, before)
}

// hasDue says whether a workspace that is not open has an experiment, run or model that was deleted
// before a time. Only the documents of what is deleted are read.
func (s *Service) hasDue(ctx context.Context, ws Workspace, before time.Time) (bool, error) {
	if err := s.markDeleted(ctx, ws); err != nil {
		return false, err
	}
	for _, kind := range mortals { // runs are due with their experiment
		for after, more := int64(0), true; more; { // a transaction for each page: others write
			due := false
			err := s.DB.View(ctx, func(tx *store.Tx) error {
				docs, err := tx.List(store.Query{Workspace: ws.Key, Kind: kind.kind, Status: []string{deleted}, Asc: true, After: after})
				more = len(docs) == 1000
				for _, d := range docs {
					e, err := kind.decode(d)
					if err != nil {
						return err
					}
					due, after = due || e.due(before), d.ID
				}
				return err
			})
			if due || err != nil {
				return due, err
			}
		}
	}
	return false, nil
}

// A mortal is what can be deleted, and is removed later.
type mortal interface {
	entity
	isDeleted() bool
	due(before time.Time) bool
}

var mortals = []struct {
	kind   string
	decode func(*store.Doc) (mortal, error)
}{
	{kindExperiments, func(d *store.Doc) (mortal, error) { return decode[experiment](d) }},
	{kindRuns, func(d *store.Doc) (mortal, error) { return decode[run](d) }},
	{kindLogged, func(d *store.Doc) (mortal, error) { return decode[loggedModel](d) }},
}

func (r *run) isDeleted() bool         { return r.Stage == deleted }
func (m *loggedModel) isDeleted() bool { return m.Deleted }
func (e *experiment) isDeleted() bool  { return e.Stage == deleted }

// markDeleted gives the documents of deleted things their status, once in a workspace: servers
// before 2026-11 wrote none. It can go when all workspaces are marked.
func (s *Service) markDeleted(ctx context.Context, ws Workspace) error {
	w := &workspace{Workspace: ws, s: s}
	marked := false
	err := s.DB.View(ctx, func(tx *store.Tx) error {
		n, err := find[counters](&change{w: w, tx: tx}, kindCounters, "counters", "")
		marked = n != nil && n.Marked
		return err
	})
	if marked || err != nil {
		return err
	}
	for _, kind := range mortals {
		for after, more := int64(0), true; more; {
			var lacking []string
			err := s.DB.View(ctx, func(tx *store.Tx) error {
				docs, err := tx.List(store.Query{Workspace: ws.Key, Kind: kind.kind, Asc: true, After: after})
				more, lacking = len(docs) == 1000, nil
				for _, d := range docs {
					e, err := kind.decode(d)
					if err != nil {
						return err
					}
					if after = d.ID; e.isDeleted() && d.Status != deleted {
						lacking = append(lacking, d.Name)
					}
				}
				return err
			})
			if err != nil {
				return err
			}
			for page := range slices.Chunk(lacking, collectPage) {
				if err := s.DB.Update(ctx, func(tx *store.Tx) error { return markPage(tx, ws.Key, kind.kind, page) }); err != nil {
					return err
				}
			}
		}
	}
	return s.DB.Update(ctx, func(tx *store.Tx) error {
		c := &change{w: w, tx: tx}
		n, err := find[counters](c, kindCounters, "counters", "")
		if err != nil {
			return err
		}
		if n == nil {
			n = &counters{}
		}
		n.Marked = true
		return c.save(n)
	})
}

// markPage gives documents the status of deleted ones. One that was restored meanwhile keeps it
// until it is written again: it says where to look.
func markPage(tx *store.Tx, workspace, kind string, names []string) error {
	for _, name := range names {
		d, err := tx.Get(workspace, kind, name, "")
		if berth.CodeOf(err) == berth.NotFound {
			continue
		}
		if err == nil {
			d.Status = deleted
			err = tx.Save(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// due says whether a run was deleted before a time.
func (r *run) due(before time.Time) bool {
	return r.Stage == deleted && r.Deleted > 0 && r.Deleted < before.UnixMilli()
}

// due says whether an experiment was deleted before a time.
func (e *experiment) due(before time.Time) bool {
	return e.Stage == deleted && e.Updated < before.UnixMilli()
}

// due says whether a model was deleted before a time. Nothing changes it after that.
func (m *loggedModel) due(before time.Time) bool {
	return m.Deleted && m.Updated < before.UnixMilli()
}

func (w *workspace) collect(ctx context.Context, before time.Time) (int, error) {
	runs, models := w.due(before)
	gone, err := w.remove(ctx, runs, models, before, dropTries)
	if errors.Is(err, errDrop) { // the next time
		return len(gone), nil
	}
	if err == nil {
		err = w.removeExperiments(ctx, before, true)
	}
	return len(gone), err
}

// due returns the runs and models that were deleted before a time.
func (w *workspace) due(before time.Time) (runs, models []string) {
	w.view(func(x *index) {
		for id, n := range x.runs {
			if n.r.doc != nil && n.r.due(before) {
				runs = append(runs, id)
			}
		}
		for id, m := range x.logged {
			if e := x.experiments[m.Experiment]; m.due(before) || e != nil && e.due(before) {
				models = append(models, id)
			}
		}
	})
	return runs, models
}

// registers says whether a version of a registered model has its files at an artifact URI, or below
// one of other roots.
func (w *workspace) registers(uri string, roots ...string) bool {
	if root, ours := proxied(uri); ours {
		roots = append(roots, path.Clean(root))
	}
	found := false
	w.view(func(x *index) {
		for p := range x.roots {
			for _, root := range roots {
				found = found || p == root || strings.HasPrefix(p, root+"/")
			}
		}
	})
	return found
}
