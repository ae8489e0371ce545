package track

import (
	"slices"

	"github.com/berthml/berth/internal/track/points"
)

// pieceSize is how many points of a history are read at a time.
const pieceSize = 4096

// pieces calls fn with the points of a reader, some at a time, until it does not want more. Of a
// long series each piece is read in a turn of the caller's, and fn runs outside of it: a slow
// client takes nobody's turn.
func (c *call) pieces(r *points.Reader, fn func([]points.Point) (more bool, err error)) error {
	p := make([]points.Point, min(max(r.Most(), 1), pieceSize))
	for {
		n, err := c.piece(r, p)
		if n > 0 {
			if more, err := fn(p[:n]); !more || err != nil {
				return err
			}
		}
		if n == 0 || err != nil {
			return err
		}
	}
}

// piece reads a piece in a turn.
func (c *call) piece(r *points.Reader, p []points.Point) (int, error) {
	if c.ctx.Err() != nil {
		return 0, interrupted()
	}
	if r.Most() >= longSeries {
		done, err := c.s.histories.take(c.ctx, c.who.User)
		if err != nil {
			return 0, err
		}
		defer done()
	}
	return r.Next(p)
}

// reader is a reader of a series. Long ones are made in a turn: it may have to sort new points.
func (c *call) reader(id, key string) (*points.Reader, error) {
	if _, n := c.points.State(id, key); n >= longSeries {
		done, err := c.s.histories.take(c.ctx, c.who.User)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	return c.points.Reader(id, key), nil
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
	if _, err := c.runOf(id); err != nil {
		return nil, err
	}
	r, err := c.reader(id, key)
	if err != nil {
		return nil, err
	}
	out, skip, left, more := c.listWriter("metrics"), from, limit, map[string]string{}
	err = c.pieces(r, func(p []points.Point) (bool, error) {
		before := min(skip, len(p))
		p, skip = p[before:], skip-before
		for _, q := range p[:min(len(p), left)] {
			if err := out.add(viewOf(key, q)); err != nil {
				return false, err
			}
		}
		if len(p) > left {
			more["next_page_token"] = tokenOf(from+limit, query)
			return false, nil
		}
		left -= len(p)
		return true, nil
	})
	if err == nil {
		err = out.end(more)
	}
	return nil, err
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
	ids = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(ids))), func(id string) bool { return c.run(id) == nil })
	for _, id := range ids { // before anything is sent
		if _, err := c.runOf(id); err != nil {
			return nil, err
		}
	}
	out, left := c.listWriter("metrics"), limit
	out.alwaysList = true
	for _, id := range ids {
		if left <= 0 {
			break
		}
		r, err := c.reader(id, key)
		if err != nil {
			return nil, err
		}
		err = c.pieces(r, func(p []points.Point) (bool, error) {
			for _, q := range p[:min(int64(len(p)), left)] {
				if err := out.addPoint(id, key, q); err != nil {
					return false, err
				}
				left--
			}
			return left > 0, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return nil, out.end(map[string]string{})
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
	for _, id := range ids { // before anything is sent
		if _, err := c.runOf(id); err != nil {
			return nil, err
		}
	}
	var in func(points.Point) bool
	if c.has("start_step") {
		in = func(q points.Point) bool { return from <= q.Step && q.Step <= to }
	}
	out := c.listWriter("metrics")
	for _, id := range ids {
		p, err := c.thin(id, key, thin, in)
		if err != nil {
			return nil, err
		}
		for _, q := range p {
			if err := out.addPoint(id, key, q); err != nil {
				return nil, err
			}
		}
	}
	return nil, out.end(map[string]string{})
}
