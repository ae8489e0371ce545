package track

import (
	"cmp"
	"iter"
	"path"
	"slices"
	"strings"
)

// An index is what was committed of a workspace, in memory and in the orders in which it is asked
// for. Whoever has it locked may read it; entities that were read stay good without the lock, since
// they do not change.
type index struct {
	experiments map[string]*experiment
	named       map[string]*experiment // by name
	runs        map[string]*node
	runsOf      map[string]*sorted[int64] // by experiment, newest first
	columns     *columns
	logged      map[string]*loggedModel
	loggedOf    map[string][]*loggedModel // by experiment, oldest first
	registered  map[string]*registered    // by id
	models      map[string]*registered    // by name
	versions    map[string][]*version     // by id of the model, by number

	roots map[string]int // at the artifact proxy, or runs:/ID/PATH, of how many versions

	jobs map[string]*jobState // of the runs that are jobs

	removed removals
	memory  int64 // see memory.go
}

func newIndex() *index {
	return &index{
		experiments: map[string]*experiment{}, named: map[string]*experiment{}, runs: map[string]*node{}, runsOf: map[string]*sorted[int64]{}, columns: newColumns(),
		logged: map[string]*loggedModel{}, loggedOf: map[string][]*loggedModel{}, registered: map[string]*registered{},
		models: map[string]*registered{}, versions: map[string][]*version{},
		jobs: map[string]*jobState{}, roots: map[string]int{},
	}
}

func laterLogged(a, b *loggedModel) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(b.ID, a.ID))
}

func byNumber(a, b *version) int { return cmp.Compare(a.Number, b.Number) }

// replace puts x where old was in a sorted list, or where it belongs.
func replace[T any](l []*T, old, x *T, order func(a, b *T) int) []*T {
	if old != nil {
		if i, ok := slices.BinarySearchFunc(l, old, order); ok {
			if x != nil && order(old, x) == 0 {
				l[i] = x
				return l
			}
			l = slices.Delete(l, i, i+1)
		}
	}
	if x == nil {
		return l
	}
	i, _ := slices.BinarySearchFunc(l, x, order)
	return slices.Insert(l, i, x)
}

// placeOf tells an entity from all others.
func placeOf(e entity) string {
	kind, name, number, _, _ := e.place()
	return kind + "\x00" + name + "\x00" + number
}

func (x *index) put(e entity) {
	if e.document().doc != nil && x.removed.of(placeOf(e)) > e.document().rev() {
		return
	}
	switch e := e.(type) {
	case *experiment:
		old := x.experiments[e.ID]
		if old != nil {
			if old.rev() > e.rev() {
				return
			}
			if x.named[old.Name] == old {
				delete(x.named, old.Name)
			}
		}
		x.experiments[e.ID], x.named[e.Name] = e, e
		counted(x, old, e)
		if old == nil || old.Staged != e.Staged {
			for n := range x.nodes(e.ID) {
				n.r = n.r.following(e) // no search has a column of stages
			}
		}
	case *run:
		x.putRun(e)
	case *loggedModel:
		old := x.logged[e.ID]
		if old != nil && old.rev() > e.rev() {
			return
		}
		x.logged[e.ID] = e
		counted(x, old, e)
		x.loggedOf[e.Experiment] = replace(x.loggedOf[e.Experiment], old, e, laterLogged)
	case *registered:
		old := x.registered[e.ID]
		if old != nil {
			if old.rev() > e.rev() {
				return
			}
			if x.models[old.Name] == old {
				delete(x.models, old.Name)
			}
		}
		x.registered[e.ID], x.models[e.Name] = e, e
		counted(x, old, e)
	case *version:
		old := x.version(e.Model, e.Number)
		if old != nil && old.rev() > e.rev() {
			return
		}
		x.versions[e.Model] = replace(x.versions[e.Model], old, e, byNumber)
		counted(x, old, e)
		x.root(old, -1)
		x.root(e, 1)
	}
}

// root counts a version with others whose files are at the same place.
func (x *index) root(v *version, by int) {
	if v == nil {
		return
	}
	p, ours := proxied(v.URI)
	if id, rest, ok := inRunOf(v.URI); ok { // the run may be read after the version
		p, ours = path.Join(runsScheme+id, rest), true
	}
	if ours && p != "" {
		if x.roots[p] += by; x.roots[p] == 0 {
			delete(x.roots, p)
		}
	}
}

// run is a run as it was committed last, nil when there is none.
func (x *index) run(id string) *run {
	if n := x.runs[id]; n != nil {
		return n.r
	}
	return nil
}

// ownerOf is the run or logged model that a path of the artifact proxy is below, or the root of.
func (x *index) ownerOf(p string) (*run, *loggedModel) {
	seg := strings.Split(p, "/")
	for i, s := range seg {
		if m := x.logged[s]; m != nil && i > 0 && seg[i-1] == "models" {
			if root, ours := proxied(m.URI); i == 2 || ours && root == path.Join(strings.Join(seg[:i+1], "/"), "artifacts") {
				return nil, m
			}
		}
		if r := x.run(s); r != nil && i+1 < len(seg) && seg[i+1] == "artifacts" {
			if root, ours := proxied(r.URI); ours && root == path.Join(strings.Join(seg[:i+1], "/"), "artifacts") {
				return r, nil
			}
		}
	}
	return nil, nil
}

// nodes are the runs of an experiment, newest first.
func (x *index) nodes(experiment string) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		l := x.runsOf[experiment]
		if l == nil {
			return
		}
		for it := range l.between(place{}, l.end()) {
			if !yield(it.n) {
				return
			}
		}
	}
}

func (x *index) putRun(r *run) {
	n := x.runs[r.ID]
	if n != nil && n.r.rev() > r.rev() {
		return
	}
	if j := x.jobs[r.ID]; j != nil {
		r = j.over(r)
	}
	r = r.following(x.experiments[r.Experiment])
	if n != nil && n.r.Experiment == r.Experiment && n.r.Start == r.Start {
		old := n.r
		n.r = r
		counted(x, old, r)
		x.columns.put(n, old, r)
		return
	}
	if n != nil {
		x.removeRun(n)
	}
	n = nodeOf(r)
	x.runs[r.ID] = n
	if x.runsOf[r.Experiment] == nil {
		x.runsOf[r.Experiment] = &sorted[int64]{}
	}
	x.runsOf[r.Experiment].insert(n.newest, n)
	counted(x, nil, r)
	x.columns.put(n, nil, r)
}

func (x *index) removeRun(n *node) {
	delete(x.runs, n.id)
	counted(x, n.r, nil)
	x.runsOf[n.r.Experiment].remove(n.newest, n)
	x.columns.remove(n, len(x.runs))
	n.r = nil
}

func (x *index) remove(e entity) {
	x.removed.add(placeOf(e), e.document().rev())
	switch e := e.(type) {
	case *experiment:
		if old := x.experiments[e.ID]; old != nil {
			delete(x.experiments, e.ID)
			if x.named[old.Name] == old {
				delete(x.named, old.Name)
			}
			delete(x.runsOf, e.ID)
			delete(x.loggedOf, e.ID)
			delete(x.columns.of, e.ID)
			counted(x, old, nil)
		}
	case *run:
		if n := x.runs[e.ID]; n != nil {
			x.removeRun(n)
		}
	case *loggedModel:
		if old := x.logged[e.ID]; old != nil {
			delete(x.logged, e.ID)
			counted(x, old, nil)
			x.loggedOf[old.Experiment] = replace(x.loggedOf[old.Experiment], old, nil, laterLogged)
		}
	case *registered:
		if old := x.registered[e.ID]; old != nil {
			delete(x.registered, e.ID)
			counted(x, old, nil)
			if x.models[old.Name] == old {
				delete(x.models, old.Name)
			}
		}
		for _, v := range x.versions[e.ID] {
			counted(x, v, nil)
			x.root(v, -1)
		}
		delete(x.versions, e.ID)
	case *version:
		if old := x.version(e.Model, e.Number); old != nil {
			x.versions[e.Model] = replace(x.versions[e.Model], old, nil, byNumber)
			counted(x, old, nil)
			x.root(old, -1)
		}
	}
}

// version is a version of the registered model with this id.
func (x *index) version(model string, number int) *version {
	l := x.versions[model]
	i, ok := slices.BinarySearchFunc(l, &version{Number: number}, byNumber)
	if !ok {
		return nil
	}
	return l[i]
}
