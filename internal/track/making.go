package track

import (
	"context"
	"strings"

	"github.com/berthml/berth/internal/track/points"
)

// How columns are made. That takes long where there are many runs, and nobody is to wait for it but
// those who need the column: runs are taken some at a time with the index locked, sorted without
// the lock, and what became of them meanwhile is done to the column before others see it. Points
// note themselves what becomes of them.

// takenAtOnce is how many runs are taken, or changes done, while the index is locked.
const takenAtOnce = 1024

// A making is a column that is being made, of a field that is not a metric.
type making struct {
	experiment string
	f          field
	last       *node // of those that were taken
	all        bool  // were taken
	moves      []move
}

// A move is what became of a run after it was taken.
type move struct {
	n       *node
	was, is rank
}

// took says whether a run was taken, if it was there then.
func (m *making) took(n *node) bool {
	return m.all || m.last != nil && compareNodes(n, m.last) <= 0
}

// A taken is a run as it was when it was taken.
type taken struct {
	n *node
	r *run
}

// take takes the next runs. The caller has the index locked for reading.
func (m *making) take(x *index) (runs []taken) {
	l := x.runsOf[m.experiment]
	if l == nil { // the last run is gone
		m.all = true
		return nil
	}
	from := l.seek(func(it item[int64]) bool { return m.last != nil && compareNodes(it.n, m.last) <= 0 })
	for it := range l.between(from, l.end()) {
		m.last = it.n
		if runs = append(runs, taken{it.n, it.n.r}); len(runs) == takenAtOnce {
			return runs
		}
	}
	m.all = true
	return runs
}

// finish does to a column what became of its runs, and shows it once that is all.
func (c *columns) finish(m *making, col column) (done bool) {
	now := m.moves[:min(len(m.moves), takenAtOnce)]
	for _, v := range now {
		moveIn(col, v)
	}
	if m.moves = m.moves[len(now):]; len(m.moves) > 0 {
		return false
	}
	c.set(m.experiment, m.f, col)
	c.making = nil
	return true
}

// lacks says whether a search needs something of prepare.
func (x *index) lacks(p points.View, experiments []string, fields []field) bool {
	c := x.columns
	for _, f := range fields {
		if f.of == metricOfRun {
			if !c.whole(f.key) || p.Behind(f.key) > 0 {
				return true
			}
			continue
		}
		for _, e := range experiments {
			if x.lacksColumn(e, f) {
				return true
			}
		}
	}
	return false
}

func (x *index) lacksColumn(e string, f field) bool { return x.columns.of[e][f] == nil && x.many(e) }

// prepare makes the columns of fields and brings them up to date, as long as the caller is there.
func (w *workspace) prepare(ctx context.Context, experiments []string, fields []field) {
	var used []field
	for _, f := range fields {
		f.key = strings.Clone(f.key) // it is a part of the request, which would stay with it
		used = append(used, f)
		if f.of == metricOfRun {
			w.makeWhere(ctx, func(x *index) bool { return !x.columns.whole(f.key) }, func() { w.makeMetric(f) })
			w.followMetric(f)
			continue
		}
		for _, e := range experiments {
			w.makeWhere(ctx, func(x *index) bool { return x.lacksColumn(e, f) }, func() { w.makeColumn(e, f) })
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.index.columns
	c.clock++
	for _, f := range used {
		c.used[f] = c.clock
	}
	c.shrink(w.points)
}

// makeWhere makes a column where it is lacking. One is made at a time, because each takes memory.
func (w *workspace) makeWhere(ctx context.Context, lacking func(*index) bool, do func()) {
	is := func() (is bool) {
		w.view(func(x *index) { is = lacking(x) })
		return is
	}
	if !is() {
		return
	}
	w.making.Lock()
	defer w.making.Unlock()
	if is() && ctx.Err() == nil { // nobody has made it meanwhile
		do()
	}
}

// makeColumn makes the column of a field that is not a metric.
func (w *workspace) makeColumn(e string, f field) {
	m := &making{experiment: e, f: f}
	w.mu.Lock()
	w.index.columns.making = m
	w.mu.Unlock()
	var list []valued
	for !m.all {
		var runs []taken
		w.view(func(x *index) { runs = m.take(x) })
		for _, t := range runs {
			if v := f.value(t.r); v.class < 2 {
				list = append(list, valued{v, t.n})
			}
		}
	}
	col := newColumn(f, list)
	for done := false; !done; {
		w.mu.Lock()
		done = w.index.columns.finish(m, col)
		w.mu.Unlock()
	}
}

// makeMetric makes the columns of a metric.
func (w *workspace) makeMetric(f field) {
	w.mu.Lock()
	c := w.index.columns
	c.drop(w.points, f)
	tears := c.tears
	w.mu.Unlock()
	lists := map[string][]valued{}
	w.points.Follow(f.key, func(now []points.Change) {
		w.view(func(x *index) {
			for _, ch := range now {
				if n := x.runs[ch.Owner]; n != nil { // and not a model
					lists[n.r.Experiment] = append(lists[n.r.Experiment], valued{numberRank(ch.Now.Value, true), n})
				}
			}
		})
	})
	cols := map[string]column{}
	for e, list := range lists {
		cols[e] = newColumn(f, list)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for e, col := range cols {
		c.set(e, f, col)
	}
	c.metrics[f.key] = tears
}

// followMetric does to the columns of a metric what became of its points until now.
func (w *workspace) followMetric(f field) {
	left := 0
	w.points.View(func(p points.View) { left = p.Behind(f.key) })
	for ; left > 0; left -= takenAtOnce {
		w.mu.Lock()
		w.index.followMetric(w.points, f)
		w.mu.Unlock()
	}
}

func (x *index) followMetric(p *points.Set, f field) {
	if _, ok := x.columns.metrics[f.key]; !ok {
		return // it has been dropped, and what is noted is for the one that makes it again
	}
	for _, ch := range p.Changes(f.key, takenAtOnce) {
		n := x.runs[ch.Owner]
		if n == nil {
			continue // of a model
		}
		col := x.columns.of[n.r.Experiment][f]
		if col == nil {
			col = newColumn(f, nil)
			x.columns.set(n.r.Experiment, f, col)
		}
		was := rank{class: 2}
		if ch.Had {
			was = numberRank(ch.Before.Value, true)
		}
		moveIn(col, move{n, was, numberRank(ch.Now.Value, true)})
	}
}
