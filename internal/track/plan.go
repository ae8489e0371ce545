package track

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// How runs are found. Where a search has no order, or is sorted by a field first, the runs are
// walked in that order and those that meet the filter are taken until they are enough. Where a
// condition holds for few runs, those are collected and sorted instead. Which is less work follows
// from how many runs meet the rarest condition, which its column tells without looking at them.

// collectCost is how much more a run costs that is collected than one that is walked past: it is
// somewhere else in memory, and is sorted.
const collectCost = 4

// fields are those that a search has columns for.
func (s *search) fields() []field {
	var out []field
	for i := range s.clauses {
		if f, ok := s.clauses[i].field(); ok && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	for _, o := range s.orders {
		if f := o.field(); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func (o order) field() field { return field{of: o.of, key: o.key} }

// field is the one whose column tells which runs meet a condition, if there is one.
func (k *clause) field() (field, bool) {
	_, named := k.ids()
	return field{of: k.of, key: k.key, lacking: k.op == "IS NULL"}, k.of != datasetOf && !named
}

// ids are the runs that a condition names.
func (k *clause) ids() (ids []string, ok bool) {
	if k.of != attribute || k.key != "run_id" {
		return nil, false
	}
	switch k.op {
	case "=":
		return []string{k.text}, true
	case "IN":
		return k.list, true
	}
	return nil, false
}

// spans is where in its column the runs are that meet all conditions on a field, and whether there
// are conditions.
func (s *search) spans(col column, f field) (spans []span, limited bool) {
	spans = col.all()
	for i := range s.clauses {
		if of, ok := s.clauses[i].field(); ok && of == f {
			spans, limited = overlap(spans, col.spans(&s.clauses[i])), true
		}
	}
	return spans, limited
}

// cheapFirst is the conditions in the order in which they are best looked at: those on metrics
// last, because their values are not with the run.
func (s *search) cheapFirst() []*clause {
	out := make([]*clause, 0, len(s.clauses))
	for _, metric := range []bool{false, true} {
		for i := range s.clauses {
			if k := &s.clauses[i]; (k.of == metricOfRun) == metric {
				out = append(out, k)
			}
		}
	}
	return out
}

// selectRuns is the runs of experiments that meet all conditions, in order, as many as are enough.
func (c *call) selectRuns(ids []string, s *search, shown func(string) bool) []*run {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	ids = slices.DeleteFunc(ids, func(id string) bool { return c.mayExperiment(id) != nil })
	fields := s.fields()
	s.screen = c.newScreen(s)
	if c.who.Job != "" {
		s.mayRun = c.mayRun
	}
	var out []*run
	// Columns follow changes of runs by themselves, those of metrics when they are asked to. Where
	// points come so fast that they are never up to date, a search is content with a moment ago.
	for try := 0; c.ctx.Err() == nil; try++ {
		ready := true
		c.view(func(x *index) {
			c.points.View(func(p points.View) {
				if ready = !x.lacks(p, ids, fields) || try > 1; ready {
					out = x.find(ids, s, p, shown)
				}
			})
		})
		switch {
		case ready && !s.screen.full:
			return out
		case ready:
			if !s.screen.settle(c.allRuns(ids)) {
				return nil
			}
			continue
		}
		c.prepare(c.ctx, ids, fields)
	}
	return nil
}

// allRuns is the runs of experiments.
func (c *call) allRuns(ids []string) []*run {
	var out []*run
	c.view(func(x *index) {
		for _, id := range ids {
			for n := range x.nodes(id) {
				out = append(out, n.r)
			}
		}
	})
	return out
}

// find is the runs that a search asks for. Its columns are prepared.
func (x *index) find(ids []string, s *search, p points.View, shown func(string) bool) []*run {
	clauses := s.cheapFirst()
	l := &look{x: x, s: s, latest: p.Latest, keep: func(r *run) bool {
		if !shown(r.Stage) || s.mayRun != nil && s.mayRun(r) != nil || s.screen.ctx.Err() != nil {
			return false
		}
		for _, k := range clauses {
			if !k.hasPattern() && !r.matches(k, p.Latest) {
				return false
			}
		}
		return s.screen.keeps(r)
	}}
	var out []*run
	for r := range l.merged(ids) {
		if out = append(out, r); len(out) == s.enough() {
			break
		}
	}
	return out
}

// A look is one search in the index.
type look struct {
	x      *index
	s      *search
	latest latestOf
	keep   func(*run) bool
	among  *group // where it looks, nil for everywhere
}

// merged is the runs of experiments that are kept, in order.
func (l *look) merged(ids []string) iter.Seq[*run] {
	if len(ids) == 1 {
		return l.inOrder(ids[0])
	}
	return func(yield func(*run) bool) {
		var heads []*head
		for _, id := range ids {
			next, stop := iter.Pull(l.inOrder(id))
			defer stop()
			if h := (&head{l: l, next: next}); h.advance() {
				heads = append(heads, h)
			}
		}
		slices.SortFunc(heads, l.compareHeads)
		for len(heads) > 0 {
			h := heads[0]
			if !yield(h.r) {
				return
			}
			heads = heads[1:]
			if h.advance() {
				i, _ := slices.BinarySearchFunc(heads, h, l.compareHeads)
				heads = slices.Insert(heads, i, h)
			}
		}
	}
}

// A head is the first run of an experiment that was not taken yet.
type head struct {
	l     *look
	next  func() (*run, bool)
	r     *run
	ranks []rank
}

func (h *head) advance() (ok bool) {
	if h.r, ok = h.next(); ok {
		h.ranks = h.ranks[:0]
		for _, o := range h.l.s.orders {
			h.ranks = append(h.ranks, h.r.rank(o, h.l.latest))
		}
	}
	return ok
}

func (l *look) compareHeads(a, b *head) int {
	for i, o := range l.s.orders {
		if c := compareRanks(a.ranks[i], b.ranks[i], o.desc); c != 0 {
			return c
		}
	}
	return compareRuns(a.r, b.r)
}

// inOrder is the runs of an experiment that are kept, in order.
func (l *look) inOrder(id string) iter.Seq[*run] {
	all := l.x.runsOf[id]
	if all == nil {
		return func(func(*run) bool) {}
	}
	rarest, few := l.rarest(id, all.size)
	w, ok := l.first(id)
	if len(l.s.orders) > 0 && (!ok || all.size < fewRuns) {
		return l.collected(rarest)
	}
	walked := all.size
	if w.limited {
		walked = w.col.count(w.spans)
	}
	if few < all.size && collectCost*few <= l.s.enough()*walked/max(few, 1) {
		return l.collected(rarest)
	}
	return l.walked(id, rarest, few)
}

// rarest is the runs that meet the conditions on the field that fewest meet, of those whose columns
// tell; all runs without one.
func (l *look) rarest(id string, all int) (iter.Seq[*node], int) {
	few, runs := all, l.x.nodes(id)
	if l.among != nil {
		few, runs = l.among.size, l.among.nodes
	}
	for i := range l.s.clauses {
		if ids, ok := l.s.clauses[i].ids(); ok {
			if len(ids) < few {
				runs, few = l.named(id, ids), len(ids)
			}
			continue
		}
		f, ok := l.s.clauses[i].field()
		if !ok {
			continue
		}
		col, ok := l.x.columns.find(id, f)
		if !ok {
			continue
		}
		spans, _ := l.s.spans(col, f)
		if n := col.count(spans); n < few {
			runs, few = col.in(spans), n
		}
	}
	return runs, few
}

// named is the runs of an experiment that have one of these ids.
func (l *look) named(experiment string, ids []string) iter.Seq[*node] {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	return func(yield func(*node) bool) {
		for _, id := range ids {
			if n := l.x.runs[id]; n != nil && n.r.Experiment == experiment && !yield(n) {
				return
			}
		}
	}
}

// collected is those of some runs that are kept, sorted.
func (l *look) collected(nodes iter.Seq[*node]) iter.Seq[*run] {
	return func(yield func(*run) bool) {
		var found []*run
		for n := range nodes {
			if n.r != nil && l.keep(n.r) {
				found = append(found, n.r)
			}
		}
		slices.SortFunc(found, compareRuns)
		for _, r := range firstBy(found, l.s.orders, l.s.enough(), l.rank) {
			if !yield(r) {
				return
			}
		}
	}
}

func (l *look) rank(r *run, o order) rank { return r.rank(o, l.latest) }

// compareRuns is the order of answers.
func compareRuns(a, b *run) int {
	if c := cmp.Compare(b.Start, a.Start); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}
