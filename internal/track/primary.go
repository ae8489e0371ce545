package track

import (
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// tagMetric names the metric that tells how a run is doing.
const tagMetric = "berth.metric"

// systemMetrics is how the keys of what the machine measured begin.
const systemMetrics = "system/"

// maxPrimary is how many runs can be asked about at once.
const maxPrimary = 10_000

// primaryMetrics is one metric of each of many runs, in one call and in their order: for lists.
func primaryMetrics(c *call) (any, error) {
	ids := c.texts("run_ids")
	if len(ids) > maxPrimary {
		c.fail(invalid("At most %d runs can be requested at once. Got %d.", maxPrimary, len(ids)))
	}
	if err := c.done(); err != nil {
		return nil, err
	}
	views, seen := []metricView{}, map[string]bool{}
	for _, id := range ids {
		r := c.run(id)
		if r == nil || seen[id] || c.mayRun(r) != nil {
			continue
		}
		seen[id] = true
		if v, ok := c.primary(r); ok {
			views = append(views, v)
		}
	}
	return map[string]any{"metrics": views}, nil
}

// primary is the metric that the run's tag names; without the tag, or that metric, the one whose
// latest point is newest, what the machine measured aside.
func (w *workspace) primary(r *run) (metricView, bool) {
	var best metricView
	found := false
	if key := r.Tags[tagMetric]; key != "" {
		var s points.Summary
		if s, found = w.points.Last(r.ID, key); found {
			best = viewOf(key, s.Latest)
		}
	}
	if !found {
		for _, s := range w.points.Latest(r.ID) {
			if !strings.HasPrefix(s.Key, systemMetrics) && (!found || s.Latest.Timestamp > best.Timestamp) {
				best, found = viewOf(s.Key, s.Latest), true
			}
		}
	}
	best.Run = r.ID
	return best, found
}
