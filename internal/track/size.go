package track

import (
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track/points"
)

// sizeView is what an experiment takes up.
type sizeView struct {
	ID         string `json:"experiment_id"`
	Name       string `json:"name"`
	Runs       int    `json:"runs"`
	Models     int    `json:"logged_models"`
	Points     int64  `json:"points"`
	PointBytes int64  `json:"point_bytes"`
	Files      int    `json:"files"`
	FileBytes  int64  `json:"file_bytes"`
}

// experimentSizes is what each experiment takes up, deleted runs and logged models too: their
// points, and their files as far as the workspace has them.
func experimentSizes(c *call) (any, error) {
	done, err := c.s.Blobs.Survey(c.ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	sizes := map[string]*sizeView{}
	owners, models := map[string][]string{}, map[string][]string{} // by experiment
	c.view(func(x *index) {
		for _, e := range x.experiments {
			sizes[e.ID] = &sizeView{ID: e.ID, Name: e.Name}
		}
		for id, n := range x.runs {
			if s := sizes[n.r.Experiment]; s != nil {
				s.Runs++
				owners[n.r.Experiment] = append(owners[n.r.Experiment], id)
			}
		}
		for id, m := range x.logged {
			if s := sizes[m.Experiment]; s != nil {
				s.Models++
				models[m.Experiment] = append(models[m.Experiment], id)
			}
		}
	})
	for experiment, ids := range owners {
		s := sizes[experiment]
		for _, id := range ids {
			n, bytes := c.points.Size(id)
			s.Points, s.PointBytes = s.Points+n, s.PointBytes+bytes
		}
	}
	for experiment, ids := range models {
		s := sizes[experiment]
		for _, id := range ids {
			_, bytes := c.points.Size(id)
			s.Points, s.PointBytes = s.Points+c.ownPoints(id), s.PointBytes+bytes
		}
	}
	count := func(experiment string, b *store.Blob) {
		if s := sizes[experiment]; s != nil {
			s.Files++
			s.FileBytes += b.Size
		}
	}
	err = c.eachBlob(locate.ArtifactPath(""), func(rest string, b *store.Blob) {
		id, _, _ := strings.Cut(rest, "/")
		if r := c.run(id); r != nil {
			count(r.Experiment, b)
		}
	})
	if err != nil {
		return nil, err
	}
	err = c.eachBlob(otherArtifacts, func(rest string, b *store.Blob) {
		var r *run
		var m *loggedModel
		c.view(func(x *index) { r, m = x.ownerOf(rest) })
		if r != nil {
			count(r.Experiment, b)
		} else if m != nil {
			count(m.Experiment, b)
		}
	})
	if err != nil {
		return nil, err
	}
	list := make([]*sizeView, 0, len(sizes))
	for _, s := range sizes {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *sizeView) int {
		return cmp.Or(cmp.Compare(b.FileBytes+b.PointBytes, a.FileBytes+a.PointBytes), strings.Compare(a.Name, b.Name))
	})
	return map[string]any{"experiments": list}, nil
}

// ownPoints is how many points a logged model has that no run has: what a run measured on a model
// is kept with both, and is counted with the run.
func (c *call) ownPoints(model string) (n int64) {
	for _, s := range c.points.Latest(model) {
		key, _, run := partsOf(s.Key)
		if _, ok := c.points.Last(run, key); !ok || c.run(run) == nil {
			n += s.Count
		}
	}
	return n
}

// PointFiles returns the files with the points of a workspace, whose storage has the ID, in a
// service's Dir. Every server may call it.
func PointFiles(dir, id string) ([]fs.FileInfo, error) { return points.Files(pointDir(dir, id)) }

// pointDir is the directory of the points of a workspace in a service's Dir.
func pointDir(dir, id string) string { return filepath.Join(dir, id) }

// eachBlob calls fn for the blobs of the workspace's artifacts whose names begin with a prefix.
func (c *call) eachBlob(prefix string, fn func(rest string, b *store.Blob)) error {
	for after := ""; ; {
		blobs, _, next, err := c.s.Blobs.List(c.ctx, c.Artifacts, blob.ListOptions{Prefix: prefix, After: after})
		if err != nil {
			return err
		}
		for _, b := range blobs {
			fn(strings.TrimPrefix(b.Name, prefix), b)
		}
		if after = next; after == "" {
			return nil
		}
	}
}
