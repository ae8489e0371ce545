package track

import "iter"

// A walk is the part of a column that a search walks.
type walk struct {
	col     column
	desc    bool
	spans   []span
	limited bool // runs that are not in spans do not meet the filter
}

// first is how the runs of an experiment are walked by a column: the one they are sorted by. Newest
// first, which is the order without another, has one where there is a condition on the start.
func (l *look) first(id string) (walk, bool) {
	o := order{of: attribute, key: "start_time", desc: true}
	if len(l.s.orders) > 0 {
		o = l.s.orders[0]
	}
	col, ok := l.x.columns.find(id, o.field())
	if !ok {
		return walk{}, false
	}
	w := walk{col: col, desc: o.desc}
	w.spans, w.limited = l.s.spans(col, o.field())
	return w, w.limited || len(l.s.orders) > 0
}

// walked is the runs that are kept, found by walking all of them in order. When more were looked at
// than the rarest, which are few, those are collected after all.
func (l *look) walked(id string, rarest iter.Seq[*node], few int) iter.Seq[*run] {
	return func(yield func(*run) bool) {
		looked, most := 0, 2*few+blockSize
		given := map[*run]bool{}
		for r, n := range l.steps(id, few) {
			if looked += n; looked > most {
				break
			}
			if r != nil {
				given[r] = true
				if !yield(r) {
					return
				}
			}
		}
		if looked <= most {
			return
		}
		for r := range l.collected(rarest) {
			if !given[r] && !yield(r) {
				return
			}
		}
	}
}

// steps is the runs of an experiment that are kept in order, each with about how many were looked
// at since the one before; nil where none of them is kept. To find those of a group, no more are
// looked at than a few times the rarest.
func (l *look) steps(id string, few int) iter.Seq2[*run, int] {
	return func(yield func(*run, int) bool) {
		if len(l.s.orders) < 2 {
			for n := range l.byFirst(id) {
				r := n.r
				if r != nil && !l.keep(r) {
					r = nil
				}
				if !yield(r, 1) {
					return
				}
			}
			return
		}
		for g := range l.groups(id) {
			if !yield(nil, min(g.size, few)) {
				return
			}
			for r := range l.inside(&g).inOrder(id) {
				if !yield(r, 0) {
					return
				}
			}
		}
	}
}

// byFirst is the runs of an experiment in the order of a search that has one field at most. Those
// that do not have it come last; where there is a condition on the field, only those are given that
// may meet it.
func (l *look) byFirst(id string) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		w, ok := l.first(id)
		if ok {
			for n := range w.col.ordered(w.desc, w.spans) {
				if !yield(n) {
					return
				}
			}
			if w.limited {
				return
			}
		}
		for n := range l.x.nodes(id) {
			if ok && l.rank(n.r, l.s.orders[0]).class < 2 {
				continue
			}
			if !yield(n) {
				return
			}
		}
	}
}

// A group is runs that have the same value of a field, or do not have it.
type group struct {
	value rank
	nodes iter.Seq[*node]
	size  int
}

// groups is the runs of an experiment by the first field of the search's order, as byFirst has
// them.
func (l *look) groups(id string) iter.Seq[group] {
	return func(yield func(group) bool) {
		w, _ := l.first(id)
		for s, v := range w.col.groups(w.desc, w.spans) {
			part := []span{s}
			if !yield(group{v, w.col.in(part), w.col.count(part)}) {
				return
			}
		}
		if w.limited {
			return
		}
		without := func(yield func(*node) bool) {
			for n := range l.x.nodes(id) {
				if l.rank(n.r, l.s.orders[0]).class == 2 && !yield(n) {
					return
				}
			}
		}
		yield(group{rank{class: 2}, without, max(0, l.x.runsOf[id].size-w.col.len())})
	}
}

// inside is the same search in a group of the first field of its order, by the other fields.
func (l *look) inside(g *group) *look {
	first, s := l.s.orders[0], *l.s
	s.orders = s.orders[1:]
	sub := *l
	sub.s, sub.among = &s, g
	sub.keep = func(r *run) bool { return l.rank(r, first) == g.value && l.keep(r) }
	return &sub
}
