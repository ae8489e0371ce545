package track

import (
	"cmp"
	"iter"
	"math"

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
	of     map[string]map[field]column // by experiment
	used   map[field]int64             // when, in searches
	clock  int64
	making *making // nil when none is
	most   int     // items of all columns

	// metrics are those whose columns are there, of all experiments that have them, and what tears
	// was when they were begun.
	metrics map[string]int
	// gone are runs that are no more. Columns of metrics have them still, and lack what comes in
	// place of one: tears counts how often that made all of these columns useless.
	gone  map[string]bool
	tears int
}

func newColumns() *columns {
	return &columns{of: map[string]map[field]column{}, used: map[field]int64{}, metrics: map[string]int{}, gone: map[string]bool{}, most: mostItems}
}

// whole says whether the columns of a metric are there and can be used.
func (c *columns) whole(key string) bool {
	tears, ok := c.metrics[key]
	return ok && tears == c.tears
}

// tear makes the columns of metrics useless.
func (c *columns) tear() {
	c.tears++
	clear(c.gone)
}

// What columns may have together; those that were not used for longest go.
const (
	mostItems  = 16 << 20
	mostFields = 256

	// itemsShare is how many bytes of MaxMemory there are for an item, which takes about 25 beyond
	// what is counted there.
	itemsShare = 128
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
	if f.of != metricOfRun {
		return col, col != nil
	}
	if col == nil {
		col = newColumn(f, nil) // no run of this experiment has it
	}
	return col, c.whole(f.key)
}

// put follows a change of a run; old is nil for a new one.
func (c *columns) put(n *node, old, now *run) {
	if old == nil && c.gone[n.id] {
		c.tear()
	}
	c.moved(n, old, now)
}

// remove follows the end of a run, of which there are so many others.
func (c *columns) remove(n *node, others int) {
	c.moved(n, n.r, nil)
	if c.gone[n.id] = true; len(c.gone) > others/4+blockSize {
		c.tear()
	}
}

// moved follows a change of a run, which is nil where it is not there.
func (c *columns) moved(n *node, old, now *run) {
	experiment := cmp.Or(old, now).Experiment
	change := func(f field) (move, bool) {
		v := move{n, rank{class: 2}, rank{class: 2}}
		if old != nil {
			v.was = f.value(old)
		}
		if now != nil {
			v.is = f.value(now)
		}
		return v, v.was != v.is
	}
	for f, col := range c.of[experiment] {
		if f.of == metricOfRun {
			continue
		}
		if v, ok := change(f); ok {
			moveIn(col, v)
		}
	}
	if m := c.making; m != nil && m.experiment == experiment && m.took(n) {
		if v, ok := change(m.f); ok {
			m.moves = append(m.moves, v)
		}
	}
}

func moveIn(col column, v move) {
	if v.was.class < 2 {
		col.remove(v.was, v.n)
	}
	if v.is.class < 2 {
		col.insert(v.is, v.n)
	}
}

// many says whether an experiment has columns.
func (x *index) many(e string) bool { return x.runsOf[e] != nil && x.runsOf[e].size >= fewRuns }

func (c *columns) set(e string, f field, col column) {
	if c.of[e] == nil {
		c.of[e] = map[field]column{}
	}
	c.of[e][f] = col
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
		if total <= c.most && len(c.used) <= mostFields || oldest == c.clock {
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
	if _, ok := c.metrics[f.key]; ok && f.of == metricOfRun { // else it may be followed to be made
		delete(c.metrics, f.key)
		p.Unfollow(f.key)
	}
}
