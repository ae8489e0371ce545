package track

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// Runs and logged models that were deleted long enough ago are removed for good: their files, their
// points, and their document last, so that what a crash leaves of one is found and removed the next
// time.

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

// hasDue says whether a workspace that is not open has a run or model that was deleted before a
// time.
func (s *Service) hasDue(ctx context.Context, ws Workspace, before time.Time) (bool, error) {
	due, err := hasDue[run](ctx, s.DB, ws.Key, kindRuns, before)
	if due || err != nil {
		return due, err
	}
	due, err = hasDue[experiment](ctx, s.DB, ws.Key, kindExperiments, before) // its runs are due with it
	if due || err != nil {
		return due, err
	}
	return hasDue[loggedModel](ctx, s.DB, ws.Key, kindLogged, before)
}

func hasDue[T any, P interface {
	*T
	entity
	due(before time.Time) bool
}](ctx context.Context, db *store.DB, workspace, kind string, before time.Time) (due bool, err error) {
	for after, more := int64(0), true; more && !due; { // a transaction for each page: others write
		err := db.View(ctx, func(tx *store.Tx) error {
			docs, err := tx.List(store.Query{Workspace: workspace, Kind: kind, Asc: true, After: after})
			more = len(docs) == 1000
			for _, d := range docs {
				e, err := decode[T, P](d)
				if err != nil {
					return err
				}
				due, after = due || e.due(before), d.ID
			}
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return due, nil
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
	gone, err := w.remove(ctx, runs, models, before, 1)
	if errors.Is(err, errDrop) { // the next time
		err = nil
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
			if m.due(before) {
				models = append(models, id)
			}
		}
	})
	return runs, models
}

// errDrop says that points of others were being written each time that some were to be removed.
var errDrop = berth.Errorf(berth.Unavailable, "the points of deleted runs were not removed because others were being written; try again")

// remove permanently removes runs and models that were deleted before a time, and returns which:
// all whose files could be removed, or none with errDrop.
func (w *workspace) remove(ctx context.Context, runs, models []string, before time.Time, tries int) ([]string, error) {
	runs, err := w.emptied(ctx, runs, func(id string) (bool, error) { return w.emptyRun(ctx, id, before) })
	if err != nil {
		return nil, err
	}
	models, err = w.emptied(ctx, models, func(id string) (bool, error) { return w.emptyLogged(ctx, id, before) })
	if err != nil || len(runs)+len(models) == 0 {
		return nil, err
	}
	for n := 1; ; n++ {
		done, err := w.points.Drop(slices.Concat(runs, models))
		if err != nil {
			return nil, err
		}
		if done {
			break
		}
		if n == tries {
			return nil, errDrop
		}
		select {
		case <-time.After(dropPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n, err := removeAll[run](ctx, w, kindRuns, runs)
	if err != nil {
		return runs[:n], err
	}
	more, err := removeAll[loggedModel](ctx, w, kindLogged, models)
	return slices.Concat(runs, models[:more]), err
}

// emptied is those whose files could be removed.
func (w *workspace) emptied(ctx context.Context, ids []string, empty func(id string) (leaves bool, err error)) (out []string, err error) {
	for _, id := range ids {
		leaves, err := empty(id)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			w.s.Log.Error("deleted run or model not removed", "id", id, "err", err)
		} else if leaves {
			out = append(out, id)
		}
	}
	return out, nil
}

// removeAll removes the documents of runs or models, and returns how many.
func removeAll[T any, P interface {
	*T
	entity
}](ctx context.Context, w *workspace, kind string, ids []string) (int, error) {
	for i, id := range ids {
		err := w.update(ctx, func(x *change) error {
			e, err := find[T, P](x, kind, id, "")
			if err != nil || e == nil {
				return err
			}
			return x.remove(e)
		})
		if err != nil {
			return i, err
		}
	}
	return len(ids), nil
}

// emptyRun removes the files of a deleted run, unless it is a job's that is still there, or a
// registered version has files of it.
func (w *workspace) emptyRun(ctx context.Context, id string, before time.Time) (bool, error) {
	leaves := false
	folder := locate.ArtifactPath(id)
	err := w.update(ctx, func(x *change) error {
		r, err := find[run](x, kindRuns, id, "")
		if err == nil && r != nil {
			var e *experiment
			if e, err = x.findExperiment(r.Experiment); err == nil {
				r.follow(e)
			}
		}
		leaves = err == nil && r != nil && r.Stage == deleted && r.Deleted < before.UnixMilli() && !w.registers(r.URI, runsScheme+r.ID)
		if !leaves {
			return err
		}
		if _, err := x.tx.Get(w.Key, kindJobs, id, ""); err == nil {
			leaves = false // the job is the run
			return nil
		} else if berth.CodeOf(err) != berth.NotFound {
			return err
		}
		version, err := blob.VersionBelow(x.tx, w.Artifacts, folder)
		if err != nil || version != "" {
			leaves = false
			return err
		}
		x.state, r.Leaving = true, true
		return x.save(r)
	})
	if err != nil || !leaves {
		return false, err
	}
	return true, w.s.DB.Update(ctx, func(tx *store.Tx) error { return blob.Erase(tx, w.Artifacts, folder) })
}

// emptyLogged removes the files of a deleted logged model, unless a registered version has files of
// it.
func (w *workspace) emptyLogged(ctx context.Context, id string, before time.Time) (bool, error) {
	leaves := false
	err := w.update(ctx, func(x *change) error {
		m, err := find[loggedModel](x, kindLogged, id, "")
		leaves = err == nil && m != nil && m.due(before) && !w.registers(m.URI)
		if !leaves {
			return err
		}
		root, ours := proxied(m.URI)
		if !ours {
			return nil // the files are elsewhere, where this server does not go
		}
		folder := otherArtifacts + root
		version, err := blob.VersionBelow(x.tx, w.Artifacts, folder)
		if err != nil || version != "" {
			leaves = false
			return err
		}
		return blob.Erase(x.tx, w.Artifacts, folder)
	})
	return leaves, err
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
