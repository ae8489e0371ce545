package track

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
)

// Runs that were deleted long enough ago are removed for good: their files, their document, and their points, in this order. What a crash
// leaves of one is removed the next time.

// keeps says whether somebody may still ask for the points of an owner.
func (w *workspace) keeps(owner string) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.index.runs[owner] != nil || w.index.logged[owner] != nil
}

// collectPause is how often it is looked for runs that were deleted long enough ago.
const collectPause = time.Hour

// collectAgain removes what was deleted long enough ago, again and again.
func (s *Service) collectAgain(ctx context.Context) {
	tick := time.NewTicker(collectPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, err := s.Collect(ctx, time.Now().Add(-s.KeepDeleted))
		if err != nil && ctx.Err() == nil {
			s.Log.Error("deleted runs were not removed", "err", err)
		} else if n > 0 {
			s.Log.Info("deleted runs were removed for good", "runs", n)
		}
	}
}

// Collect removes the runs for good that were deleted before a time, in the workspaces that were used since the server started. It returns
// how many they were.
func (s *Service) Collect(ctx context.Context, before time.Time) (int, error) {
	s.mu.Lock()
	var spaces []*workspace
	for _, w := range s.spaces {
		if w.loaded.Load() {
			spaces = append(spaces, w)
		}
	}
	s.mu.Unlock()
	removed := 0
	for _, w := range spaces {
		n, err := w.collect(ctx, before)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (w *workspace) collect(ctx context.Context, before time.Time) (int, error) {
	var ids []string
	w.view(func(x *index) {
		for id, n := range x.runs {
			if n.r.doc != nil && n.r.Stage == deleted && n.r.Deleted > 0 && n.r.Deleted < before.UnixMilli() {
				ids = append(ids, id)
			}
		}
	})
	removed := 0
	for _, id := range ids {
		ok, err := w.removeRun(ctx, id, before)
		if err != nil {
			return removed, err
		}
		if ok {
			removed++
		}
	}
	if removed == 0 {
		return 0, nil
	}
	return removed, w.points.Collect()
}

// removeRun removes a deleted run for good, unless it is a job's that is still there, or a registered model has files of it.
func (w *workspace) removeRun(ctx context.Context, id string, before time.Time) (bool, error) {
	leaves := false
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
		r.Leaving = true
		return x.save(r)
	})
	if err != nil || !leaves {
		return false, err
	}
	if err := w.deleteFiles(ctx, file{container: w.Artifacts, name: locate.ArtifactPath(id)}); err != nil {
		return false, err
	}
	err = w.update(ctx, func(x *change) error {
		r, err := find[run](x, kindRuns, id, "")
		if err != nil || r == nil {
			return err
		}
		return x.remove(r)
	})
	return err == nil, err
}

// registers says whether a version of a registered model has its files in a run.
func (w *workspace) registers(r *run) bool {
	root, ours := proxied(r.URI)
	if !ours {
		return false
	}
	found := false
	w.view(func(x *index) {
		for p := range x.roots {
			found = found || p == root || strings.HasPrefix(p, path.Clean(root)+"/")
		}
	})
	return found
}
