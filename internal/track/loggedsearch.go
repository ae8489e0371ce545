package track

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

var loggedGrammar = &grammar{
	entities: map[string]subject{"metrics": metricOfRun, "params": paramOfRun, "tags": tagOf, "attributes": attribute},
	attributes: map[string]bool{
		"name": false, "model_id": false, "model_type": false, "status": false, "source_run_id": false,
		"creation_timestamp_ms": true, "last_updated_timestamp_ms": true,
	},
	lists: func(s subject, key string) (string, bool) { return notAList(key), s == attribute },
	alias: map[string]string{
		"creation_timestamp": "creation_timestamp_ms", "creation_time": "creation_timestamp_ms",
		"last_updated_timestamp": "last_updated_timestamp_ms", "last_updated_time": "last_updated_timestamp_ms",
	},
}

// A scope narrows metrics to those that were measured on a dataset.
type scope struct{ name, digest string }

func (s scope) covers(v metricView) bool {
	return (s.name == "" || s.name == v.Dataset) && (s.digest == "" || s.digest == v.Digest)
}

// loggedMetric is the latest value of a metric of a model, on one of the datasets where there are
// any.
func (c *call) loggedMetric(m *loggedModel, key string, on []scope) (points.Point, bool) {
	var best points.Point
	found := false
	for _, s := range c.points.Latest(m.ID) {
		v := modelMetric(m.ID, s.Key, s.Latest)
		if key != "" && v.Key != key || len(on) > 0 && !slices.ContainsFunc(on, func(x scope) bool { return x.covers(v) }) {
			continue
		}
		if !found || s.Latest.Timestamp > best.Timestamp {
			best, found = s.Latest, true
		}
	}
	return best, found
}

func (m *loggedModel) attribute(key string) string {
	switch key {
	case "name":
		return m.Name
	case "model_id":
		return m.ID
	case "model_type":
		return m.Type
	case "source_run_id":
		return m.Run
	case "status":
		return strings.TrimPrefix(m.Status, "LOGGED_MODEL_")
	}
	return ""
}

func (c *call) loggedMatches(m *loggedModel, k *clause, on []scope) bool {
	switch k.of {
	case metricOfRun:
		p, has := c.loggedMetric(m, k.key, on)
		return k.matchesNumber(p.Value, has)
	case paramOfRun:
		v, has := m.Params[k.key]
		return k.matches(v, has)
	case tagOf:
		v, has := m.Tags[k.key]
		return k.matches(v, has)
	}
	switch k.key {
	case "creation_timestamp_ms":
		return k.matchesNumber(float64(m.Created), true)
	case "last_updated_timestamp_ms":
		return k.matchesNumber(float64(m.Updated), true)
	case "status":
		return k.matches(m.attribute(k.key), true) || k.matches(m.Status, true)
	}
	return k.matches(m.attribute(k.key), true)
}

// loggedOrder is one of the things logged models are sorted by.
type loggedOrder struct {
	order
	on []scope
}

func (p *params) loggedOrders() []loggedOrder {
	var out []loggedOrder
	for _, m := range p.items("order_by") {
		q := params{m: m}
		name := q.text("field_name")
		desc := q.has("ascending") && !q.bool("ascending")
		o := loggedOrder{order: order{desc: desc}}
		if d := (scope{q.text("dataset_name"), q.text("dataset_digest")}); d.name != "" {
			o.on = []scope{d}
		} else if d.digest != "" {
			p.fail(invalid("`dataset_digest` can only be specified if `dataset_name` is also specified."))
		}
		if q.err != nil {
			p.fail(q.err)
		}
		entity, key, dotted := strings.Cut(name, ".")
		switch {
		case name == "":
			p.fail(invalid("`field_name` in the `order_by` clause must be specified."))
		case dotted && entity == "metrics":
			o.of = metricOfRun
			o.key, _ = unquote(key, "`\"")
		case dotted:
			p.fail(invalid("Invalid order by field name: %s, only `metrics.<name>` is allowed.", entity))
		default:
			_, key, err := loggedGrammar.identify(name, loggedGrammar.searchable())
			if err != nil {
				p.fail(invalid("Invalid order by field name: %s.", name))
			}
			o.key = key
		}
		out = append(out, o)
	}
	return out
}

func (c *call) loggedRank(m *loggedModel, o loggedOrder) rank {
	if o.of == metricOfRun {
		p, has := c.loggedMetric(m, o.key, o.on)
		return numberRank(p.Value, has)
	}
	switch o.key {
	case "creation_timestamp_ms":
		return numberRank(float64(m.Created), true)
	case "last_updated_timestamp_ms":
		return numberRank(float64(m.Updated), true)
	}
	return textRank(m.attribute(o.key), true)
}

func searchLogged(c *call) (any, error) {
	ids := c.texts("experiment_ids")
	if len(ids) == 0 {
		c.fail(required("experiment_ids"))
	}
	orders := c.loggedOrders()
	var on []scope
	for _, d := range c.items("datasets") {
		q := params{m: d}
		on = append(on, scope{q.text("dataset_name"), q.text("dataset_digest")})
		if on[len(on)-1].name == "" {
			c.fail(invalid("`dataset_name` in the `datasets` clause must be specified."))
		}
	}
	s, err := c.search(loggedGrammar, nil, 100, 50000, ids, fmt.Sprint(orders), fmt.Sprint(on))
	if err != nil {
		return nil, err
	}
	models := c.selectLogged(ids, s, on)
	if len(orders) > 0 {
		plain := make([]order, len(orders))
		for i, o := range orders {
			plain[i] = order{of: subject(i), desc: o.desc} // the rank finds the order by its place
		}
		models = sortBy(models, plain, func(m *loggedModel, o order) rank { return c.loggedRank(m, orders[o.of]) })
	}
	return answer(s, "models", models, func(m *loggedModel) (any, error) { return c.loggedView(m) })
}

func (c *call) selectLogged(ids []string, s *search, on []scope) []*loggedModel {
	onMetric := slices.ContainsFunc(s.clauses, func(k clause) bool { return k.of == metricOfRun })
	var all, out []*loggedModel
	c.view(func(x *index) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			all = append(all, x.loggedOf[id]...)
		}
	})
	slices.SortFunc(all, func(a, b *loggedModel) int { return laterLogged(b, a) })
	for _, m := range all {
		if m.Deleted || c.mayReadLogged(m) != nil {
			continue
		}
		if len(on) > 0 && !onMetric {
			if _, has := c.loggedMetric(m, "", on); !has {
				continue
			}
		}
		if s.meets(func(k *clause) bool { return c.loggedMatches(m, k, on) }) {
			out = append(out, m)
		}
	}
	return out
}
