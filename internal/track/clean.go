package track

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// keptJob is why the run of a job is not removed.
const keptJob = "it is the run of a job that is still listed"

const (
	// cleanPage is how many runs and models one transaction looks at.
	cleanPage = 100
	// dropTries and dropPause are how often, and how soon again, points are removed that cannot be
	// while others are written.
	dropTries = 100
	dropPause = 50 * time.Millisecond
)

// Clean permanently removes runs and logged models that were deleted before a time, with their
// points and files: those that user made, or everybody's where user is "". What is still used is
// kept, see the reasons in the answer. With q.DryRun it only counts. Bytes has points as far as
// they are in compacted files.
func (s *Service) Clean(ctx context.Context, ws Workspace, user string, q berth.CleanStorage) (berth.CleanedStorage, error) {
	sum := berth.CleanedStorage{DryRun: q.DryRun, Kept: []berth.KeptStorage{}}
	if err := s.leads(); err != nil {
		return sum, err
	}
	w, err := s.open(ctx, ws)
	if err != nil {
		return sum, err
	}
	runs, models := w.due(q.Before)
	k := cleaning{w: w, user: user, sizes: map[string]removable{}, kept: map[string]int64{}}
	if runs, err = k.choose(ctx, runs, k.checkRun); err != nil {
		return sum, err
	}
	if models, err = k.choose(ctx, models, k.checkLogged); err != nil {
		return sum, err
	}
	gone := slices.Concat(runs, models)
	if !q.DryRun {
		gone, err = w.remove(ctx, runs, models, q.Before, dropTries)
		if len(gone) > 0 {
			s.Log.Info("deleted runs and models permanently removed", "workspace", ws.Of.Name, "count", len(gone))
		}
		if err == nil {
			err = w.removeExperiments(ctx, q.Before, user == "")
		}
	}
	for _, id := range gone {
		sum.Runs, sum.Files, sum.Bytes = sum.Runs+1, sum.Files+k.sizes[id].files, sum.Bytes+k.sizes[id].bytes
	}
	for _, why := range []string{berth.KeptTag, keptJob, berth.KeptUse, berth.KeptHeld} {
		if n := k.kept[why]; n > 0 {
			sum.Kept = append(sum.Kept, berth.KeptStorage{Reason: why, Runs: n})
		}
	}
	return sum, err
}

type cleaning struct {
	w     *workspace
	user  string
	sizes map[string]removable // of what is removed
	kept  map[string]int64
	texts []string // the jobs that have not ended, in lower case
	names map[string]bool
}

// removable is what is freed with a run or model.
type removable struct{ files, bytes int64 }

// choose returns those that may be removed. check returns why one is kept, and the folder of its
// files; it is called in a transaction for each of them that is the user's.
func (k *cleaning) choose(ctx context.Context, ids []string, check func(tx *store.Tx, id string) (f file, folder, why string, err error)) (out []string, err error) {
	for page := range slices.Chunk(ids, cleanPage) {
		var chosen []string
		var kept []string
		sizes := map[string]removable{}
		err := k.w.s.DB.View(ctx, func(tx *store.Tx) error {
			chosen, kept = nil, nil
			if err := k.readJobs(tx); err != nil {
				return err
			}
			for _, id := range page {
				f, folder, why, err := check(tx, id)
				if err != nil {
					return err
				}
				if f.run == nil && f.model == nil { // restored or removed meanwhile
					continue
				}
				maker, err := k.w.owner(tx, f)
				if err != nil {
					return err
				}
				if maker = cmp.Or(maker, f.importer()); k.user != "" && maker != k.user {
					continue
				}
				if o, _, _ := f.origin(); why == "" && (k.names[o.Job] || k.isNamed(id)) {
					why = berth.KeptUse
				}
				if why == "" && folder != "" {
					version, err := blob.VersionBelow(tx, k.w.Artifacts, folder)
					if err != nil {
						return err
					}
					if version != "" {
						why = berth.KeptHeld
					}
				}
				if why != "" {
					kept = append(kept, why)
					continue
				}
				if sizes[id], err = k.size(tx, id, folder); err != nil {
					return err
				}
				chosen = append(chosen, id)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, chosen...)
		for _, why := range kept {
			k.kept[why]++
		}
		for id, n := range sizes {
			k.sizes[id] = n
		}
	}
	return out, nil
}

func (k *cleaning) checkRun(tx *store.Tx, id string) (f file, folder, why string, err error) {
	r := k.w.run(id)
	if r == nil || r.Stage != deleted {
		return file{}, "", "", nil
	}
	job, err := k.w.jobNamed(tx, id)
	switch {
	case err != nil:
		return file{}, "", "", err
	case job != nil:
		why = keptJob
	case isKept(r.Tags):
		why = berth.KeptTag
	case k.w.registers(r.URI, runsScheme+r.ID):
		why = berth.KeptHeld
	}
	return file{run: r}, locate.ArtifactPath(id), why, nil
}

func (k *cleaning) checkLogged(_ *store.Tx, id string) (f file, folder, why string, err error) {
	var e *experiment
	k.w.view(func(x *index) {
		if f.model = x.logged[id]; f.model != nil {
			e = x.experiments[f.model.Experiment]
		}
	})
	if f.model == nil || !f.model.Deleted && (e == nil || e.Stage != deleted) {
		return file{}, "", "", nil
	}
	switch {
	case isKept(f.model.Tags):
		why = berth.KeptTag
	case k.w.registers(f.model.URI):
		why = berth.KeptHeld
	}
	if root, ours := proxied(f.model.URI); ours {
		folder = otherArtifacts + root
	}
	return f, folder, why, nil
}

func isKept(tags map[string]string) bool { return strings.EqualFold(tags[berth.KeepTag], "true") }

// readJobs reads the jobs that have not ended.
func (k *cleaning) readJobs(tx *store.Tx) error {
	docs, err := tx.All(store.Query{Workspace: k.w.Key, Kind: kindJobs, Status: berth.StatusTexts(berth.ActiveStatuses)})
	k.texts, k.names = nil, map[string]bool{}
	for _, d := range docs {
		k.names[d.Name] = true
		k.texts = append(k.texts, strings.ToLower(string(d.Body)))
	}
	return err
}

// isNamed reports whether a job that has not ended names a run or model.
func (k *cleaning) isNamed(id string) bool {
	id = strings.ToLower(id)
	return slices.ContainsFunc(k.texts, func(text string) bool { return strings.Contains(text, id) })
}

func (k *cleaning) size(tx *store.Tx, id, folder string) (removable, error) {
	_, bytes := k.w.points.Size(id)
	out := removable{bytes: bytes}
	if folder == "" {
		return out, nil
	}
	for q := (store.BlobQuery{Container: k.w.Artifacts, Prefix: folder + "/"}); ; {
		page, err := tx.ListBlobs(q)
		if err != nil || len(page) == 0 {
			return out, err
		}
		for _, b := range page {
			q.After = b.Name
			out.files, out.bytes = out.files+1, out.bytes+b.Size
		}
	}
}
