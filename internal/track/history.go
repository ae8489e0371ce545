package track

import (
	"slices"

	"github.com/berthml/berth/internal/track/points"
)

// history is the points of a metric of a run that the caller may see.
func (c *call) history(id, key string) ([]points.Point, error) {
	if _, err := c.runOf(id); err != nil {
		return nil, err
	}
	return c.points.History(id, key)
}

func getHistory(c *call) (any, error) {
	id, key, token := c.runID(), c.need("metric_key"), c.text("page_token")
	limit := c.limit(1<<40, 1<<40)
	if err := c.done(); err != nil {
		return nil, err
	}
	query := queryOf(id, key)
	from, err := offset(token, query)
	if err != nil {
		return nil, err
	}
	p, err := c.history(id, key)
	if err != nil {
		return nil, err
	}
	p, next := page(p, from, limit, query)
	views := make([]metricView, len(p))
	for i := range p {
		views[i] = viewOf(key, p[i])
	}
	return paged("metrics", views, next), nil
}

// The limits of the calls for several runs.
const (
	maxHistoryRuns    = 100
	maxHistoryPoints  = 25000
	maxIntervalPoints = 2500
)

func getHistoryBulk(c *call) (any, error) {
	ids, key := c.texts("run_id"), c.text("metric_key")
	switch {
	case len(ids) == 0:
		return nil, invalid("GetMetricHistoryBulk request must specify at least one run_id.")
	case len(ids) > maxHistoryRuns:
		return nil, invalid("GetMetricHistoryBulk request cannot specify more than %d run_ids. Received %d run_ids.", maxHistoryRuns, len(ids))
	case !c.has("metric_key"):
		return nil, invalid("GetMetricHistoryBulk request must specify a metric_key.")
	}
	limit := min(c.int("max_results", maxHistoryPoints), maxHistoryPoints)
	if err := c.done(); err != nil {
		return nil, err
	}
	views := []metricView{}
	for _, id := range slices.Sorted(slices.Values(ids)) {
		r := c.run(id)
		if r == nil {
			continue
		}
		p, err := c.history(id, key)
		if err != nil {
			return nil, err
		}
		for i := range p {
			if int64(len(views)) >= limit {
				break
			}
			v := viewOf(key, p[i])
			v.Run = id
			views = append(views, v)
		}
	}
	return map[string]any{"metrics": views}, nil
}

func getHistoryInterval(c *call) (any, error) {
	ids, key := c.texts("run_ids"), c.text("metric_key")
	limit, from, to := c.int("max_results", maxIntervalPoints), c.int("start_step", 0), c.int("end_step", 0)
	switch {
	case len(ids) == 0:
		c.fail(required("run_ids"))
	case len(ids) > maxHistoryRuns:
		c.fail(invalid("GetMetricHistoryBulkInterval request must specify at most %d run_ids. Received %d run_ids."+seeDocs, maxHistoryRuns, len(ids)))
	case key == "":
		c.fail(required("metric_key"))
	case limit < 1 || limit > maxIntervalPoints:
		c.fail(invalid("max_results must be between 1 and %d."+seeDocs, maxIntervalPoints))
	case c.has("start_step") != c.has("end_step"):
		c.fail(invalid("If either start step or end step are specified, both must be specified."))
	case from > to:
		c.fail(invalid("end_step must be greater than start_step. Found start_step=%d and end_step=%d.", from, to))
	}
	var thin thinning = &sample{limit: int(limit)}
	switch how := c.text("sampling"); how {
	case "":
	case "minmax": // not MLflow's: for charts
		if limit >= 4 {
			thin = &envelope{limit: int(limit)}
		}
	default:
		c.fail(invalid("Invalid value '%s' for parameter 'sampling' supplied: it is minmax, or absent", how))
	}
	if err := c.done(); err != nil {
		return nil, err
	}
	views := []metricView{}
	for _, id := range ids {
		var in func(points.Point) bool
		if c.has("start_step") {
			in = func(q points.Point) bool { return from <= q.Step && q.Step <= to }
		}
		p, err := c.thin(id, key, thin, in)
		if err != nil {
			return nil, err
		}
		for _, q := range p {
			v := viewOf(key, q)
			v.Run = id
			views = append(views, v)
		}
	}
	return paged("metrics", views, ""), nil
}

// thin is what a thinning leaves of the points of a metric, of those that are in.
func (c *call) thin(id, key string, t thinning, in func(points.Point) bool) ([]points.Point, error) {
	if _, err := c.runOf(id); err != nil {
		return nil, err
	}
	if in == nil {
		state, n := c.points.State(id, key)
		if n < longSeries {
			return c.thinAll(id, key, t)
		}
		chart := chartKey{state: state, limit: t.most()}
		_, chart.envelope = t.(*envelope)
		return c.charts.get(chart, func() ([]points.Point, error) { return c.thinAll(id, key, t) })
	}
	p, err := c.points.History(id, key)
	return thinned(t, slices.DeleteFunc(p, func(q points.Point) bool { return !in(q) })), err
}

// thinAll is what a thinning leaves of all points of a metric.
func (c *call) thinAll(id, key string, t thinning) ([]points.Point, error) {
	if ok, err := c.points.Walk(id, key, t.begin, t.each); ok || err != nil {
		return t.rest(), err
	}
	p, err := c.points.History(id, key)
	return thinned(t, p), err
}
