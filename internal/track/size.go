package track

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
)

// sizeView is what an experiment takes up.
type sizeView struct {
	ID         string `json:"experiment_id"`
	Name       string `json:"name"`
	Runs       int    `json:"runs"`
	Points     int64  `json:"points"`
	PointBytes int64  `json:"point_bytes"`
	Files      int    `json:"files"`
	FileBytes  int64  `json:"file_bytes"`
}

// experimentSizes is what each experiment takes up, deleted runs too: their points, and their files
// as far as the workspace has them.
func experimentSizes(c *call) (any, error) {
	done, err := c.s.Blobs.Survey(c.ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	sizes := map[string]*sizeView{}
	var runs []*run
	c.view(func(x *index) {
		for _, e := range x.experiments {
			sizes[e.ID] = &sizeView{ID: e.ID, Name: e.Name}
		}
		for _, n := range x.runs {
			runs = append(runs, n.r)
		}
	})
	for _, r := range runs {
		s := sizes[r.Experiment]
		if s == nil {
			continue
		}
		points, bytes := c.points.Size(r.ID)
		s.Runs, s.Points, s.PointBytes = s.Runs+1, s.Points+points, s.PointBytes+bytes
	}
	prefix := locate.ArtifactPath("")
	for after := ""; ; {
		blobs, _, next, err := c.s.Blobs.List(c.ctx, c.Artifacts, blob.ListOptions{Prefix: prefix, After: after})
		if err != nil {
			return nil, err
		}
		for _, b := range blobs {
			id, _, _ := strings.Cut(strings.TrimPrefix(b.Name, prefix), "/")
			if r := c.run(id); r != nil && sizes[r.Experiment] != nil {
				sizes[r.Experiment].Files++
				sizes[r.Experiment].FileBytes += b.Size
			}
		}
		if after = next; after == "" {
			break
		}
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
