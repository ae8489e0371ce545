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

	mu    sync.Mutex
	added []Entry
	err   error
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
	s.watches[owner] = append(s.watches[owner], w)
	return w, nil
}

// Stop ends the watch.
func (w *Watch) Stop() {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	list := slices.DeleteFunc(w.set.watches[w.owner], func(x *Watch) bool { return x == w })
	if len(list) == 0 {
		delete(w.set.watches, w.owner)
	} else {
		w.set.watches[w.owner] = list
	}
}

// Take is the points since it was called last, or why there will be no more.
func (w *Watch) Take() ([]Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	added := w.added
	w.added = nil
	if len(added) > 0 {
		return added, nil
	}
	return nil, w.err
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

// tell tells watches of points that are durable. The caller holds mu.
func (s *Set) tell(list []added) {
	if len(s.watches) == 0 {
		return
	}
	behind := map[*Watch]bool{} // by those whose watch has been looked at
	for _, a := range list {
		for _, w := range s.watches[a.x.owner.name] {
			w.mu.Lock()
			if _, known := behind[w]; !known {
				behind[w] = len(w.added) >= mostWaiting
			}
			switch {
			case w.err != nil:
			case behind[w]:
				w.err = ErrBehind
			default:
				w.added = append(w.added, Entry{Owner: w.owner, Key: a.x.key, Point: a.p})
			}
			w.mu.Unlock()
			w.ready()
		}
	}
}
