package track

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// Runs that were deleted long enough ago are removed for good: their files, their points, and their
// document last, so that what a crash leaves of one is found and removed the next time.

// collectPause is how often it is looked for them.
const collectPause = time.Hour

// collectDue removes what was deleted long enough ago.
func (s *Service) collectDue(ctx context.Context) {
	n, err := s.Collect(ctx, time.Now().Add(-s.KeepDeleted))
	if err != nil && ctx.Err() == nil {
		s.Log.Error("deleted runs not removed", "err", err)
	}
	if n > 0 {
		s.Log.Info("deleted runs permanently removed", "runs", n)
	}
}

// Collect removes the runs for good that were deleted before a time, in all workspaces. It returns
// how many they were. One that cannot be removed is left for the next time.
func (s *Service) Collect(ctx context.Context, before time.Time) (int, error) {
	var all []Workspace
	err := s.DB.View(ctx, func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Kind: kindWorkspaces})
		for _, d := range docs {
			ws, err := WorkspaceOf(d)
			if err != nil {
				s.Log.Error("deleted runs of a workspace not removed", "workspace", d.Name, "err", err)
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
			s.Log.Error("deleted runs of a workspace not removed", "workspace", ws.Of.Name, "err", err)
		}
	}
	return removed, nil
}

// collect removes the runs of a workspace. One that nobody uses is opened only for something to
// remove.
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

// hasDue says whether a workspace that is not open has a run that was deleted before a time.
func (s *Service) hasDue(ctx context.Context, ws Workspace, before time.Time) (due bool, err error) {
	for after, more := int64(0), true; more && !due; { // a transaction for each page: others write
		err := s.DB.View(ctx, func(tx *store.Tx) error {
			docs, err := tx.List(store.Query{Workspace: ws.Key, Kind: kindRuns, Asc: true, After: after})
			more = len(docs) == 1000
			for _, d := range docs {
				r, err := decode[run](d)
				if err != nil {
					return err
				}
				due, after = due || r.due(before), d.ID
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

func (w *workspace) collect(ctx context.Context, before time.Time) (int, error) {
	var ids, leaving []string
	w.view(func(x *index) {
		for id, n := range x.runs {
			if n.r.doc != nil && n.r.due(before) {
				ids = append(ids, id)
			}
		}
	})
	for _, id := range ids {
		leaves, err := w.emptyRun(ctx, id, before)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err != nil {
			w.s.Log.Error("deleted run not removed", "run", id, "err", err)
		} else if leaves {
			leaving = append(leaving, id)
		}
	}
	if len(leaving) == 0 {
		return 0, nil
	}
	if done, err := w.points.Drop(leaving); err != nil || !done {
		return 0, err
	}
	for i, id := range leaving {
		err := w.update(ctx, func(x *change) error {
			r, err := find[run](x, kindRuns, id, "")
			if err != nil || r == nil {
				return err
			}
			return x.remove(r)
		})
		if err != nil {
			return i, err
		}
	}
	return len(leaving), nil
}

// emptyRun removes the files of a deleted run, unless it is a job's that is still there, or a
// registered version has files of it.
func (w *workspace) emptyRun(ctx context.Context, id string, before time.Time) (bool, error) {
	leaves := false
	folder := locate.ArtifactPath(id)
	err := w.update(ctx, func(x *change) error {
		r, err := find[run](x, kindRuns, id, "")
		leaves = err == nil && r != nil && r.Stage == deleted && r.Deleted < before.UnixMilli() && !w.registers(r)
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
		r.Leaving = true
		return x.save(r)
	})
	if err != nil || !leaves {
		return false, err
	}
	return true, w.s.DB.Update(ctx, func(tx *store.Tx) error { return blob.Erase(tx, w.Artifacts, folder) })
}

// registers says whether a version of a registered model has its files in a run.
func (w *workspace) registers(r *run) bool {
	roots := []string{runsScheme + r.ID}
	if root, ours := proxied(r.URI); ours {
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
