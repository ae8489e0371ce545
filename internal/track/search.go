package track

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// A search is what a caller looks for, and which page of it.
type search struct {
	ctx         context.Context // of the caller, who may go
	clauses     []clause
	orders      []order
	from, limit int
	query       string

	// Of a search for runs.
	screen *screen
	mayRun func(*run) error // nil where the caller may see all
}

// search reads the filter, the order and the page of a search. absent and most are its numbers of
// results; about is whatever else tells this search from another.
func (c *call) search(g *grammar, orderBy []string, absent, most int64, about ...any) (*search, error) {
	filter, token := c.text("filter"), c.text("page_token")
	s := &search{ctx: c.ctx, limit: c.limit(absent, most)}
	err := c.done()
	if err == nil {
		s.clauses, err = g.parse(filter)
	}
	if err == nil {
		s.orders, err = g.parseOrders(orderBy)
	}
	if err == nil {
		s.query = queryOf(append(about, filter, orderBy)...)
		s.from, err = offset(token, s.query)
	}
	return s, err
}

// enough is how many results a page needs: its own, those before it, and one that says there is
// more.
func (s *search) enough() int { return s.from + s.limit + 1 }

// meets says whether a thing meets all conditions.
func (s *search) meets(matches func(*clause) bool) bool {
	for i := range s.clauses {
		k := &s.clauses[i]
		if k.hasPattern() && s.ctx.Err() != nil || !matches(k) {
			return false
		}
	}
	return true
}

// keep leaves those of some things that a search looks for, as long as the caller is there.
func keep[T any](c *call, s *search, things []T, meets func(T) bool) ([]T, error) {
	done, err := c.turnToCompare(s)
	if err != nil {
		return nil, err
	}
	defer done()
	things = slices.DeleteFunc(things, func(x T) bool { return c.ctx.Err() != nil || !meets(x) })
	if c.ctx.Err() != nil {
		return nil, interrupted()
	}
	return things, nil
}

var runGrammar = &grammar{
	entities: map[string]subject{
		"metric": metricOfRun, "metrics": metricOfRun, "param": paramOfRun, "params": paramOfRun, "parameter": paramOfRun,
		"parameters": paramOfRun, "tag": tagOf, "tags": tagOf, "attribute": attribute, "attributes": attribute, "attr": attribute,
		"run": attribute, "dataset": datasetOf, "datasets": datasetOf,
	},
	attributes: map[string]bool{
		"run_id": false, "run_name": false, "user_id": false, "status": false, "artifact_uri": false, "start_time": true, "end_time": true,
	},
	orders: []string{"artifact_uri", "end_time", "experiment_id", "run_id", "run_name", "start_time", "status", "user_id"},
	lists: func(s subject, key string) (string, bool) {
		return notAList(key), s == datasetOf || s == attribute && key == "run_id"
	},
	nulls: []subject{tagOf, paramOfRun},
	alias: map[string]string{
		"created": "start_time", "Created": "start_time", "run name": "run_name", "Run name": "run_name", "Run Name": "run_name",
	},
}

// latestOf is the latest value of a metric.
type latestOf func(owner, key string) (points.Point, bool)

// matches says whether a run meets a condition.
func (r *run) matches(c *clause, latest latestOf) bool {
	switch c.of {
	case metricOfRun:
		p, has := latest(r.ID, c.key)
		return c.matchesNumber(p.Value, has)
	case paramOfRun:
		v, has := r.Params[c.key]
		return c.matches(v, has)
	case tagOf:
		v, has := r.Tags[c.key]
		return c.matches(v, has)
	case datasetOf:
		return slices.ContainsFunc(r.Datasets, func(d datasetInput) bool { return d.matches(c) })
	}
	switch c.key {
	case "start_time":
		return c.matchesNumber(float64(r.Start), true)
	case "end_time":
		if r.End == nil {
			return false
		}
		return c.matchesNumber(float64(*r.End), true)
	}
	return c.matches(r.attribute(c.key), true)
}

func (r *run) attribute(key string) string {
	switch key {
	case "run_id":
		return r.ID
	case "run_name":
		return r.Name
	case "user_id":
		return r.User
	case "status":
		return r.Status
	case "experiment_id":
		return r.Experiment
	}
	return r.URI
}

const tagContext = "mlflow.data.context"

func (d datasetInput) matches(c *clause) bool {
	switch c.key {
	case "name":
		return c.matches(d.Dataset.Name, true)
	case "digest":
		return c.matches(d.Dataset.Digest, true)
	}
	for _, t := range d.Tags {
		if t.Key == tagContext && c.matches(t.Value, true) {
			return true
		}
	}
	return false
}

// rank is what a run is sorted by.
func (r *run) rank(o order, latest latestOf) rank {
	switch o.of {
	case metricOfRun:
		p, has := latest(r.ID, o.key)
		return numberRank(p.Value, has)
	case paramOfRun:
		v, has := r.Params[o.key]
		return textRank(v, has)
	case tagOf:
		v, has := r.Tags[o.key]
		return textRank(v, has)
	}
	switch o.key {
	case "start_time":
		return numberRank(float64(r.Start), true)
	case "end_time":
		if r.End == nil {
			return rank{class: 2}
		}
		return numberRank(float64(*r.End), true)
	}
	return textRank(r.attribute(o.key), true)
}

// stages are those that a view type shows; nil is all.
func stages(view string) (func(stage string) bool, error) {
	switch view {
	case "", "ACTIVE_ONLY":
		return func(s string) bool { return s == active }, nil
	case "DELETED_ONLY":
		return func(s string) bool { return s == deleted }, nil
	case "ALL":
		return func(string) bool { return true }, nil
	}
	return nil, invalid("Invalid view type '%s'. Valid values are ACTIVE_ONLY, DELETED_ONLY, ALL.", view)
}

// viewType reads a view type, which may be a number.
func (p *params) viewType(name string) func(string) bool {
	v, _ := p.get(name)
	if n, ok := intOf(v); ok {
		v = map[int64]string{1: "ACTIVE_ONLY", 2: "DELETED_ONLY", 3: "ALL"}[n]
	} else if v == nil {
		v = ""
	}
	s, ok := v.(string)
	if !ok {
		p.fail(wrongType(name, v))
	}
	shown, err := stages(s)
	if err != nil {
		p.fail(err)
	}
	return shown
}

// selectInTurn is selectRuns in a turn, if it compares texts with patterns.
func (c *call) selectInTurn(ids []string, s *search, shown func(string) bool) ([]*run, error) {
	done, err := c.turnToCompare(s)
	if err != nil {
		return nil, err
	}
	defer done()
	found := c.selectRuns(ids, s, shown)
	if c.ctx.Err() != nil {
		return nil, interrupted()
	}
	return found, nil
}

// experimentView is a parameter that MLflow does not have: which experiments are looked through,
// where they are not named.
const experimentView = "berth_experiment_view_type"

// experimentsWithRuns is the ids of experiments that have runs.
func (w *workspace) experimentsWithRuns(shown func(string) bool) (ids []string) {
	w.view(func(x *index) {
		for id, e := range x.experiments {
			if shown(e.Stage) && x.runsOf[id] != nil {
				ids = append(ids, id)
			}
		}
	})
	return ids
}

func searchRuns(c *call) (any, error) {
	ids, shown := c.texts("experiment_ids"), c.viewType("run_view_type")
	view, viewed := c.get(experimentView)
	within, metrics := c.viewType(experimentView), c.shownMetrics()
	if viewed && len(ids) > 0 {
		c.fail(invalid("Give either experiment_ids or %s", experimentView))
	}
	s, err := c.search(runGrammar, c.texts("order_by"), 1000, 50000, ids, view)
	if err != nil {
		return nil, err
	}
	if viewed {
		ids = c.experimentsWithRuns(within)
	}
	found, err := c.selectInTurn(ids, s, shown)
	if err != nil {
		return nil, err
	}
	if s.from < len(found) {
		s.limit = min(s.limit, withTexts(found[s.from:min(len(found), s.from+s.limit)]))
	}
	return sendPage(c, s, "runs", found, func(out *listWriter, r *run) error { return c.addRunWith(out, r, metrics) })
}

var experimentGrammar = &grammar{
	entities:   map[string]subject{"tag": tagOf, "tags": tagOf, "attribute": attribute, "attributes": attribute, "attr": attribute},
	attributes: map[string]bool{"name": false, "experiment_id": false, "creation_time": true, "last_update_time": true},
	orders:     []string{"creation_time", "experiment_id", "last_update_time", "name"},
	lists: func(s subject, key string) (string, bool) {
		return "Only the 'experiment_id' attribute supports comparison with a list of quoted string values.", s == attribute && key == "experiment_id"
	},
	nulls: []subject{tagOf},
}

func (e *experiment) matches(c *clause) bool {
	if c.of == tagOf {
		v, has := e.Tags[c.key]
		return c.matches(v, has)
	}
	switch c.key {
	case "creation_time":
		return c.matchesNumber(float64(e.Created), true)
	case "last_update_time":
		return c.matchesNumber(float64(e.Updated), true)
	case "experiment_id":
		return c.matches(e.ID, true)
	}
	return c.matches(e.Name, true)
}

func (e *experiment) number() int64 {
	n, err := strconv.ParseInt(e.ID, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (e *experiment) rank(o order) rank {
	switch o.key {
	case "creation_time":
		return numberRank(float64(e.Created), true)
	case "last_update_time":
		return numberRank(float64(e.Updated), true)
	case "experiment_id":
		return numberRank(float64(e.number()), true)
	}
	return textRank(e.Name, true)
}

func searchExperiments(c *call) (any, error) {
	if !c.has("max_results") {
		c.fail(invalid("Invalid value 0 for parameter 'max_results' supplied. It must be a positive integer"))
	}
	shown := c.viewType("view_type")
	s, err := c.search(experimentGrammar, c.texts("order_by"), 0, 50000)
	if err != nil {
		return nil, err
	}
	for _, o := range s.orders {
		if o.of != attribute {
			return nil, invalid("Invalid order_by entity: %s", subjectNames[o.of])
		}
	}
	tie := order{key: "experiment_id"}
	if len(s.orders) == 0 {
		s.orders = []order{{key: "creation_time", desc: true}}
	} else {
		tie.desc = true
	}
	if !slices.ContainsFunc(s.orders, func(o order) bool { return o.key == tie.key }) {
		s.orders = append(s.orders, tie)
	}
	var found []*experiment
	c.view(func(x *index) {
		for _, e := range x.experiments {
			if shown(e.Stage) {
				found = append(found, e)
			}
		}
	})
	found = slices.DeleteFunc(found, func(e *experiment) bool { return c.mayExperiment(e.ID) != nil })
	if found, err = keep(c, s, found, func(e *experiment) bool { return s.meets(e.matches) }); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *experiment) int { return strings.Compare(a.ID, b.ID) })
	found = sortBy(found, s.orders, (*experiment).rank)
	return sendPage(c, s, "experiments", found, func(out *listWriter, e *experiment) error { return out.add(e.view()) })
}
