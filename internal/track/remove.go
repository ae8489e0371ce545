package track

import (
	"context"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// errDrop says that points of others were being written each time that some were to be removed.
var errDrop = berth.Errorf(berth.Unavailable, "the points of deleted runs were not removed because others were being written; try again")

const (
	// collectPage is how many runs or models one transaction removes at most.
	collectPage = 100
	// collectFiles is about how many files it looks at or deletes: others write between.
	collectFiles = 1000
)

// remove permanently removes runs and models that were deleted before a time, and returns which:
// all whose files could be removed, or none with errDrop.
func (w *workspace) remove(ctx context.Context, runs, models []string, before time.Time, tries int) ([]string, error) {
	runs, folders, err := w.leave(ctx, runs, func(x *change, id string) (string, int, error) { return x.leaveRun(id, before) })
	if err != nil {
		return nil, err
	}
	models, more, err := w.leave(ctx, models, func(x *change, id string) (string, int, error) { return x.leaveLogged(id, before) })
	if err == nil {
		err = w.erase(ctx, append(folders, more...))
	}
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
	n, err = removeAll[loggedModel](ctx, w, kindLogged, models)
	return slices.Concat(runs, models[:n]), err
}

// nowhere is the folder of what has no files here, and stays of what is not removed.
const (
	nowhere = "-"
	stays   = ""
)

// leave has runs or models go for good, as far as they may, and returns those and their folders.
// one does so for each, and says how many files it looked at.
func (w *workspace) leave(ctx context.Context, ids []string, one func(x *change, id string) (folder string, files int, err error)) (leaving, folders []string, err error) {
	for size := collectPage; len(ids) > 0; {
		var page, at []string
		done := 0
		err := w.update(ctx, func(x *change) error {
			page, at, done = nil, nil, 0
			for files := 0; done < min(size, len(ids)) && files < collectFiles; done++ {
				folder, n, err := one(x, ids[done])
				if err != nil {
					return err
				}
				files += n
				if folder != stays {
					page = append(page, ids[done])
				}
				if folder != stays && folder != nowhere {
					at = append(at, folder)
				}
			}
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case berth.CodeOf(err) == berth.Unavailable || isDiskFull(err): // it is none of them
			return nil, nil, err
		case err != nil && size > 1:
			size = 1 // it is one of them: look which, and the others go
			continue
		case err != nil:
			w.s.Log.Error("deleted run or model not removed", "id", ids[0], "err", err)
			page, at, done, size = nil, nil, 1, collectPage
		}
		leaving, folders, ids = append(leaving, page...), append(folders, at...), ids[done:]
	}
	return leaving, folders, nil
}

// removeAll removes the documents of runs or models, and returns how many.
func removeAll[T any, P interface {
	*T
	entity
}](ctx context.Context, w *workspace, kind string, ids []string) (n int, err error) {
	for page := range slices.Chunk(ids, collectPage) {
		err := w.update(ctx, func(x *change) error {
			for _, id := range page {
				e, err := find[T, P](x, kind, id, "")
				if err == nil && e != nil {
					err = x.remove(e)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return n, err
		}
		n += len(page)
	}
	return n, nil
}

// leaveRun has a deleted run go for good, unless it is a job's that is still there, or a registered
// version has files of it.
func (c *change) leaveRun(id string, before time.Time) (folder string, files int, err error) {
	r, err := find[run](c, kindRuns, id, "")
	if err != nil || r == nil {
		return stays, 0, err
	}
	e, err := c.findExperiment(r.Experiment)
	if err != nil {
		return stays, 0, err
	}
	r.follow(e)
	if !r.due(before) || c.w.registers(r.URI, runsScheme+r.ID) {
		return stays, 0, nil
	}
	if _, err := c.tx.Get(c.w.Key, kindJobs, id, ""); berth.CodeOf(err) != berth.NotFound {
		return stays, 0, err // the job is the run
	}
	folder = locate.ArtifactPath(id)
	held, files, err := c.held(folder)
	if err != nil || held {
		return stays, files, err
	}
	c.state, r.Leaving = true, true
	return folder, files, c.save(r)
}

// leaveLogged has a logged model go for good that was deleted, or whose experiment was, unless a
// registered version has files of it.
func (c *change) leaveLogged(id string, before time.Time) (folder string, files int, err error) {
	m, err := find[loggedModel](c, kindLogged, id, "")
	if err != nil || m == nil || c.w.registers(m.URI) {
		return stays, 0, err
	}
	if !m.due(before) {
		if e, err := find[experiment](c, kindExperiments, m.Experiment, ""); err != nil || e == nil || !e.due(before) {
			return stays, 0, err
		}
	}
	folder = nowhere // the files are elsewhere, where this server does not go
	if root, ours := proxied(m.URI); ours {
		folder = otherArtifacts + root
		held, n, err := c.held(folder)
		if files = n; err != nil || held {
			return stays, files, err
		}
	}
	if m.Deleted {
		return folder, files, nil
	}
	c.state, m.Deleted = true, true // it does not come back with its experiment
	return folder, files, c.save(m)
}

// held says whether a version has files in a folder, and how many files there are.
func (c *change) held(folder string) (held bool, files int, err error) {
	for after := ""; !held; {
		after, err = c.w.filesIn(c.tx, folder, after, func(b *store.Blob) error {
			v, err := blob.VersionAt(c.tx, b)
			held, files = held || v != "", files+1
			return err
		})
		if err != nil || after == "" {
			return held, files, err
		}
	}
	return held, files, nil
}

// filesIn calls f for some files in a folder of the artifacts after one, and for a file of that
// name, and returns the last of them, "" at the end.
func (w *workspace) filesIn(tx *store.Tx, folder, after string, f func(*store.Blob) error) (last string, err error) {
	var page []*store.Blob
	if after == "" { // the file, if there is one, comes before all else that begins with its name
		first, err := tx.ListBlobs(store.BlobQuery{Container: w.Artifacts, Prefix: folder, Limit: 1})
		if err != nil {
			return "", err
		}
		if len(first) > 0 && first[0].Name == folder {
			page = first
		}
	}
	below, err := tx.ListBlobs(store.BlobQuery{Container: w.Artifacts, Prefix: folder + "/", After: after, Limit: collectFiles})
	if err != nil {
		return "", err
	}
	for _, b := range append(page, below...) {
		if err := f(b); err != nil {
			return "", err
		}
	}
	if len(below) < collectFiles {
		return "", nil
	}
	return below[len(below)-1].Name, nil
}

// erase deletes the files in folders, save what versions consist of.
func (w *workspace) erase(ctx context.Context, folders []string) error {
	after := ""
	for len(folders) > 0 {
		done, last := 0, after
		err := w.s.DB.Update(ctx, func(tx *store.Tx) error {
			done, last = 0, after
			for n := 0; done < len(folders) && done < collectPage && n < collectFiles; {
				var err error
				last, err = w.filesIn(tx, folders[done], last, func(b *store.Blob) error {
					n++
					_, err := blob.EraseOne(tx, b)
					return err
				})
				if err != nil {
					return err
				}
				if last == "" {
					done++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		folders, after = folders[done:], last
	}
	return nil
}
