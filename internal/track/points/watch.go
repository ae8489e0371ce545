package points

import (
	"errors"
	"slices"
	"sync"
)

// A Watch is told of the points of one owner once they are durable.
type Watch struct {
	// Ready has something in it when Take does.
	Ready chan struct{}

	set   *Set
	owner string

	mu      sync.Mutex
	added   [][]Entry // what became durable at once; others have the same lists
	waiting int       // entries in added
	err     error
}

// mostWaiting is how many points wait for somebody who does not take them, before more come. What
// becomes durable at once is not divided.
const mostWaiting = 5_000

// ErrBehind ends a watch whose points are not taken as fast as they come.
var ErrBehind = errors.New("points come faster than they are taken")

// Watch begins to tell of an owner's points. The caller calls Stop.
func (s *Set) Watch(owner string) (*Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	w := &Watch{Ready: make(chan struct{}, 1), set: s, owner: owner}
	if s.watches == nil {
		s.watches = map[string][]*Watch{}
	}
	s.watches[owner] = append(slices.Clip(s.watches[owner]), w) // who tells has the list
	return w, nil
}

// Stop ends the watch.
func (w *Watch) Stop() {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	w.set.drop(w.owner, func(x *Watch) bool { return x == w })
}

// drop forgets some watches of an owner. The caller holds mu.
func (s *Set) drop(owner string, which func(*Watch) bool) {
	list := slices.DeleteFunc(slices.Clone(s.watches[owner]), which)
	if len(list) == 0 {
		delete(s.watches, owner)
	} else {
		s.watches[owner] = list
	}
}

// Take is the points since it was called last, or why there will be no more. The caller does not
// change them.
func (w *Watch) Take() ([]Entry, error) {
	w.mu.Lock()
	added := w.added
	w.added, w.waiting = nil, 0
	err := w.err
	w.mu.Unlock()
	switch len(added) {
	case 0:
		return nil, err
	case 1:
		return added[0], nil
	}
	return slices.Concat(added...), nil
}

func (w *Watch) ready() {
	select {
	case w.Ready <- struct{}{}:
	default:
	}
}

func (w *Watch) finish(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.ready()
}

// add tells of points, and reports whether the watch goes on.
func (w *Watch) add(list []Entry) bool {
	w.mu.Lock()
	switch {
	case w.err != nil:
	case w.waiting >= mostWaiting:
		w.err = ErrBehind
	default:
		w.added = append(w.added, list)
		w.waiting += len(list)
	}
	on := w.err == nil
	w.mu.Unlock()
	w.ready()
	return on
}

// A telling is what the watches of an owner are to be told.
type telling struct {
	owner   string
	watches []*Watch
	points  []Entry
}

// tellings are for the watches that there are now. The caller holds mu.
func (s *Set) tellings(list []added) []*telling {
	if len(s.watches) == 0 {
		return nil
	}
	var out []*telling
	of := map[string]*telling{} // nil for those whom nobody watches
	for _, a := range list {
		owner := a.x.owner.name
		t, known := of[owner]
		if !known {
			if w := s.watches[owner]; len(w) > 0 {
				t = &telling{owner: owner, watches: w}
				out = append(out, t)
			}
			of[owner] = t
		}
		if t != nil {
			t.points = append(t.points, Entry{Owner: owner, Key: a.x.key, Point: a.p})
		}
	}
	return out
}

// tell tells watches of points that are durable, however many there are without mu. The caller
// leads, so that the next points come afterwards.
func (s *Set) tell(list []*telling) {
	for _, t := range list {
		ended := map[*Watch]bool{}
		for _, w := range t.watches {
			if !w.add(t.points) {
				ended[w] = true
			}
		}
		if len(ended) > 0 {
			s.mu.Lock()
			s.drop(t.owner, func(w *Watch) bool { return ended[w] })
			s.mu.Unlock()
		}
	}
}
