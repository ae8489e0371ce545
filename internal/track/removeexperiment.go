package track

import (
	"context"
	"time"

	"github.com/berthml/berth/internal/store"
)

// removeExperiments permanently removes experiments that were deleted before a time and of which no
// run and no logged model is left. Files that belong to neither go with them; without files,
// experiments that have such stay, since nobody knows whose they are.
func (w *workspace) removeExperiments(ctx context.Context, before time.Time, files bool) error {
	if len(w.emptyExperiments(before)) == 0 {
		return nil
	}
	if err := w.catchUp(ctx); err != nil { // some may have runs that are jobs
		return err
	}
	for _, e := range w.emptyExperiments(before) {
		err := w.removeExperiment(ctx, e.ID, before, files)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			w.s.Log.Error("deleted experiment not removed", "id", e.ID, "err", err)
		}
	}
	return nil
}

func (w *workspace) emptyExperiments(before time.Time) (empty []*experiment) {
	w.view(func(x *index) {
		for _, e := range x.experiments {
			if e.due(before) && !e.lasts() && x.isEmpty(e) {
				empty = append(empty, e)
			}
		}
	})
	return empty
}

// lasts says that an experiment is always there: jobs that name none are in it.
func (e *experiment) lasts() bool { return e.ID == "0" || e.Name == "Default" }

func (x *index) isEmpty(e *experiment) bool {
	runs := x.runsOf[e.ID]
	return (runs == nil || runs.size == 0) && len(x.loggedOf[e.ID]) == 0
}

func (w *workspace) removeExperiment(ctx context.Context, id string, before time.Time, files bool) error {
	folder := stays
	err := w.update(ctx, func(x *change) (err error) {
		folder, err = x.leaveExperiment(id, before, files)
		return err
	})
	if err != nil || folder == stays {
		return err
	}
	if folder != nowhere {
		if err := w.erase(ctx, []string{folder}); err != nil {
			return err
		}
	}
	n, err := removeAll[experiment](ctx, w, kindExperiments, []string{id})
	if n > 0 {
		w.s.Log.Info("deleted experiment permanently removed", "workspace", w.Of.Name, "id", id)
	}
	return err
}

// leaveExperiment has a deleted experiment go for good, and returns the folder of its files.
func (c *change) leaveExperiment(id string, before time.Time, files bool) (folder string, err error) {
	e, err := find[experiment](c, kindExperiments, id, "")
	if err != nil || e == nil || !e.due(before) || e.lasts() {
		return stays, err
	}
	jobs, err := c.tx.List(store.Query{Workspace: c.w.Key, Kind: kindJobs, Parent: e.Name, Limit: 1, NoBody: true})
	if err != nil || len(jobs) > 0 { // their runs are its
		return stays, err
	}
	root, ours := proxied(e.Location)
	empty, shared := false, false
	c.w.view(func(x *index) {
		empty = x.isEmpty(e)
		for _, other := range x.experiments {
			p, _ := proxied(other.Location)
			shared = shared || other.ID != id && (p == root || isBelow(other.Location, root))
		}
	})
	if !empty || c.w.registers(e.Location) {
		return stays, nil
	}
	folder = nowhere
	if ours && root != "" && !shared {
		folder = otherArtifacts + root
		held, n, err := c.held(folder)
		if err != nil || held || n > 0 && !files {
			return stays, err
		}
	}
	e.Leaving = true
	return folder, c.save(e)
}
