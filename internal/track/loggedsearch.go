package track

import (
	"cmp"
	"fmt"
	"maps"
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

// maxScopes bounds the datasets of one search.
const maxScopes = 100

// A scope narrows metrics to those that were measured on a dataset. Without a digest it is any
// version of it.
type scope struct{ name, digest string }

// A wanted metric is one that a search looks at: of any dataset, or of those in on. Without a key
// it is any metric.
type wanted struct {
	key string
	on  map[scope]bool
}

func (w wanted) covers(v metricView) bool {
	return len(w.on) == 0 || w.on[scope{name: v.Dataset}] || w.on[scope{v.Dataset, v.Digest}]
}

// A question is the metrics that a search of logged models looks at.
type question struct {
	wanted []wanted
	byKey  map[string][]int // places in wanted
}

// add notes that a metric is wanted and returns its place.
func (q *question) add(w wanted) int {
	if q.byKey == nil {
		q.byKey = map[string][]int{}
	}
	for _, i := range q.byKey[w.key] {
		if maps.Equal(q.wanted[i].on, w.on) {
			return i
		}
	}
	q.byKey[w.key] = append(q.byKey[w.key], len(q.wanted))
	q.wanted = append(q.wanted, w)
	return len(q.wanted) - 1
}

// A found metric is the latest value of one that is wanted.
type found struct {
	points.Point
	key string // of the series
	has bool
}

// ask looks at every series of a model once.
func (q *question) ask(v points.View, model string) []found {
	out := make([]found, len(q.wanted))
	if len(out) == 0 {
		return out
	}
	v.Each(model, func(key string, latest points.Point) {
		m := modelMetric(model, key, latest)
		for _, list := range [][]int{q.byKey[m.Key], q.byKey[""]} {
			for _, i := range list {
				f := &out[i]
				later := cmp.Or(cmp.Compare(latest.Timestamp, f.Timestamp), strings.Compare(f.key, key)) > 0
				if q.wanted[i].covers(m) && (!f.has || later) {
					*f = found{latest, key, true}
				}
			}
		}
	})
	return out
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

func (m *loggedModel) matches(k *clause, metric func(key string) found) bool {
	switch k.of {
	case metricOfRun:
		f := metric(k.key)
		return k.matchesNumber(f.Value, f.has)
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
	on scope // of a metric; empty for any dataset
}

func (p *params) loggedOrders() []loggedOrder {
	var out []loggedOrder
	items := p.items("order_by")
	if len(items) > maxOrders {
		p.fail(invalid("`order_by` has more than %d fields", maxOrders))
		return nil
	}
	for _, m := range items {
		q := params{m: m}
		name := q.text("field_name")
		desc := q.has("ascending") && !q.bool("ascending")
		o := loggedOrder{order: order{desc: desc}}
		if d := (scope{q.text("dataset_name"), q.text("dataset_digest")}); d.name != "" {
			o.on = d
		} else if d.digest != "" {
			p.fail(invalid("`dataset_digest` can only be specified if `dataset_name` is also specified."))
		}
		if err := cmp.Or(q.err, checkOrder(name)); err != nil {
			p.fail(err)
			return nil
		}
		entity, key, dotted := strings.Cut(name, ".")
		switch {
		case name == "":
			p.fail(invalid("`field_name` in the `order_by` clause must be specified."))
		case dotted && entity == "metrics":
			o.of = metricOfRun
			o.key, _ = unquote(key, "`\"")
			if err := checkLength("metric key", maxKey, o.key); err != nil {
				p.fail(err)
			}
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

func (m *loggedModel) rank(o loggedOrder, f found) rank {
	if o.of == metricOfRun {
		return numberRank(f.Value, f.has)
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
	datasets := c.items("datasets")
	if len(datasets) > maxScopes {
		return nil, invalid("`datasets` has more than %d entries", maxScopes)
	}
	on := map[scope]bool{}
	for _, d := range datasets {
		q := params{m: d}
		s := scope{q.text("dataset_name"), q.text("dataset_digest")}
		if s.name == "" {
			c.fail(invalid("`dataset_name` in the `datasets` clause must be specified."))
		}
		on[s] = true
	}
	s, err := c.search(loggedGrammar, nil, 100, 50000, ids, fmt.Sprint(orders), fmt.Sprint(on))
	if err != nil {
		return nil, err
	}
	models, err := c.selectLogged(ids, s, on)
	if err != nil {
		return nil, err
	}
	if len(orders) > 0 {
		models = c.sortLogged(models, orders)
	}
	room := maxModelPoints
	return sendPage(c, s, "models", models, func(out *listWriter, m *loggedModel) error { return c.addLogged(out, m, &room) })
}

// sortLogged sorts models that are in their default order.
func (c *call) sortLogged(models []*loggedModel, orders []loggedOrder) []*loggedModel {
	var q question
	plain, at := make([]order, len(orders)), make([]int, len(orders))
	for i, o := range orders {
		plain[i] = order{of: subject(i), desc: o.desc} // the rank finds the order by its place
		if o.of == metricOfRun {
			w := wanted{key: o.key}
			if o.on.name != "" {
				w.on = map[scope]bool{o.on: true}
			}
			at[i] = q.add(w)
		}
	}
	var metrics []found
	var of *loggedModel
	return sortBy(models, plain, func(m *loggedModel, o order) rank { // all ranks of one model in turn
		if m != of {
			of = m
			c.points.View(func(v points.View) { metrics = q.ask(v, m.ID) })
		}
		by := orders[o.of]
		if by.of != metricOfRun {
			return m.rank(by, found{})
		}
		return m.rank(by, metrics[at[o.of]])
	})
}

// selectLogged is the models that meet a search, the latest first.
func (c *call) selectLogged(ids []string, s *search, on map[scope]bool) ([]*loggedModel, error) {
	var q question
	for _, k := range s.clauses {
		if k.of == metricOfRun {
			q.add(wanted{k.key, on})
		}
	}
	anyMetric := len(on) > 0 && len(q.wanted) == 0
	if anyMetric {
		q.add(wanted{"", on})
	}
	var all []*loggedModel
	c.view(func(x *index) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			all = append(all, x.loggedOf[id]...)
		}
	})
	all = slices.DeleteFunc(all, func(m *loggedModel) bool { return m.Deleted || c.mayReadLogged(m) != nil })
	slices.SortFunc(all, func(a, b *loggedModel) int { return laterLogged(b, a) })
	return keep(c, s, all, func(m *loggedModel) bool {
		var metrics []found
		c.points.View(func(v points.View) { metrics = q.ask(v, m.ID) })
		if anyMetric && !metrics[0].has {
			return false
		}
		metric := func(key string) found { return metrics[q.byKey[key][0]] }
		return s.meets(func(k *clause) bool { return m.matches(k, metric) })
	})
}
