package track

import (
	"cmp"
	"iter"
	"math"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// A field is what runs can be looked for and sorted by.
type field struct {
	of  subject
	key string
	// lacking says that it is the runs that do not have it: they are found, not sorted.
	lacking bool
}

func (f field) number() bool {
	return f.of == metricOfRun || f.of == attribute && (f.key == "start_time" || f.key == "end_time")
}

// A column has the runs of an experiment that have a field, sorted by it. It is made when a search
// first needs it, and follows changes from then on.
type column interface {
	insert(v rank, n *node)
	remove(v rank, n *node)
	len() int
	all() []span
	// spans is where the runs are that meet a condition, and perhaps others: they meet no condition
	// elsewhere.
	spans(c *clause) []span
	count(spans []span) int
	in(spans []span) iter.Seq[*node]
	// ordered is the runs of spans by the field; NaN comes last.
	ordered(desc bool, spans []span) iter.Seq[*node]
	// groups is where those of the same value are, in the same order, and the value.
	groups(desc bool, spans []span) iter.Seq2[span, rank]
}

type values[K cmp.Ordered] struct {
	*sorted[K]
	key  func(rank) K
	rank func(K) rank
}

type (
	numbers struct{ values[float64] }
	texts   struct{ values[string] }
)

func numberKey(v rank) float64 {
	if v.class == 1 {
		return math.NaN()
	}
	return v.number
}

func textKey(v rank) string { return v.text }

// valued is a run with what it is sorted by.
type valued struct {
	v rank
	n *node
}

func newColumn(f field, list []valued) column {
	if f.number() {
		return numbers{valuesOf(list, numberKey, func(v float64) rank { return numberRank(v, true) })}
	}
	return texts{valuesOf(list, textKey, func(v string) rank { return textRank(v, true) })}
}

func valuesOf[K cmp.Ordered](list []valued, key func(rank) K, rankOf func(K) rank) values[K] {
	items := make([]item[K], len(list))
	for i, x := range list {
		items[i] = item[K]{key(x.v), x.n}
	}
	return values[K]{fill(items), key, rankOf}
}

func (c values[K]) insert(v rank, n *node) { c.sorted.insert(c.key(v), n) }
func (c values[K]) remove(v rank, n *node) { c.sorted.remove(c.key(v), n) }
func (c values[K]) len() int               { return c.size }

// columns are those of a workspace.
type columns struct {
	of      map[string]map[field]column // by experiment
	metrics map[string]bool             // whose columns are there, of all experiments that have it
	used    map[field]int64             // when, in searches
	clock   int64
	torn    bool // a run is gone that columns of metrics may have still
}

func newColumns() *columns {
	return &columns{of: map[string]map[field]column{}, metrics: map[string]bool{}, used: map[field]int64{}}
}

// What columns may have together; those that were not used for longest go.
const (
	mostItems  = 16 << 20
	mostFields = 256
)

// fewRuns is how many runs an experiment has at least that has columns.
const fewRuns = 64

// value is what a run has of a field that is not a metric.
func (f field) value(r *run) rank {
	v := r.rank(order{of: f.of, key: f.key}, nil)
	if f.lacking {
		return textRank("", v.class == 2)
	}
	return v
}

// find is a column that is prepared.
func (c *columns) find(experiment string, f field) (column, bool) {
	col := c.of[experiment][f]
	if col == nil && f.of == metricOfRun && c.metrics[f.key] {
		return newColumn(f, nil), true // no run of this experiment has it
	}
	return col, col != nil
}

// put follows a change of a run; old is nil for a new one.
func (c *columns) put(n *node, old, now *run) {
	for f, col := range c.of[now.Experiment] {
		if f.of == metricOfRun {
			continue
		}
		v, was := f.value(now), rank{class: 2}
		if old != nil {
			was = f.value(old)
		}
		if v == was {
			continue
		}
		if was.class < 2 {
			col.remove(was, n)
		}
		if v.class < 2 {
			col.insert(v, n)
		}
	}
}

// remove follows the end of a run.
func (c *columns) remove(n *node) {
	for f, col := range c.of[n.r.Experiment] {
		if f.of == metricOfRun {
			c.torn = true
		} else if v := f.value(n.r); v.class < 2 {
			col.remove(v, n)
		}
	}
}

// lacks says whether a search needs something of prepare.
func (x *index) lacks(p points.View, experiments []string, fields []field) bool {
	c := x.columns
	for _, f := range fields {
		if f.of == metricOfRun {
			if c.torn || !c.metrics[f.key] || p.Changed(f.key) {
				return true
			}
			continue
		}
		for _, e := range experiments {
			if c.of[e][f] == nil && x.many(e) {
				return true
			}
		}
	}
	return false
}

// many says whether an experiment has columns.
func (x *index) many(e string) bool { return x.runsOf[e] != nil && x.runsOf[e].size >= fewRuns }

// prepare makes the columns of fields and brings them up to date.
func (x *index) prepare(p *points.Set, experiments []string, fields []field) {
	c := x.columns
	if c.torn {
		for key := range c.metrics {
			c.drop(p, field{of: metricOfRun, key: key})
		}
		c.torn = false
	}
	c.clock++
	for _, f := range fields {
		f.key = strings.Clone(f.key) // it is a part of the request, which would stay with it
		c.used[f] = c.clock
		if f.of == metricOfRun {
			x.followMetric(p, f)
			continue
		}
		for _, e := range experiments {
			if c.of[e][f] != nil || !x.many(e) {
				continue
			}
			var list []valued
			for n := range x.nodes(e) {
				if v := f.value(n.r); v.class < 2 {
					list = append(list, valued{v, n})
				}
			}
			c.set(e, f, newColumn(f, list))
		}
	}
	c.shrink(p)
}

func (c *columns) set(e string, f field, col column) {
	if c.of[e] == nil {
		c.of[e] = map[field]column{}
	}
	c.of[e][f] = col
}

// followMetric brings the columns of a metric up to date.
func (x *index) followMetric(p *points.Set, f field) {
	c := x.columns
	lists := map[string][]valued{}
	for _, ch := range p.Changes(f.key) {
		n := x.runs[ch.Owner]
		if n == nil {
			continue // of a model
		}
		e, v := n.r.Experiment, numberRank(ch.Now.Value, true)
		if !c.metrics[f.key] {
			lists[e] = append(lists[e], valued{v, n})
			continue
		}
		col := c.of[e][f]
		if col == nil {
			col = newColumn(f, nil)
			c.set(e, f, col)
		}
		if ch.Had {
			col.remove(numberRank(ch.Before.Value, true), n)
		}
		col.insert(v, n)
	}
	c.metrics[f.key] = true
	for e, list := range lists {
		c.set(e, f, newColumn(f, list))
	}
}

// shrink lets the columns go that were not used for longest, until few enough are left.
func (c *columns) shrink(p *points.Set) {
	for {
		total := 0
		for _, cols := range c.of {
			for _, col := range cols {
				total += col.len()
			}
		}
		victim, oldest := field{}, c.clock
		for f, used := range c.used { // those too that no run has: they have no column
			if used < oldest {
				victim, oldest = f, used
			}
		}
		if total <= mostItems && len(c.used) <= mostFields || oldest == c.clock {
			return
		}
		c.drop(p, victim)
	}
}

// drop lets the columns of a field go.
func (c *columns) drop(p *points.Set, f field) {
	for _, cols := range c.of {
		delete(cols, f)
	}
	delete(c.used, f)
	if f.of == metricOfRun {
		delete(c.metrics, f.key)
		p.Unfollow(f.key)
	}
}
