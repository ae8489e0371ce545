package points

import (
	"maps"
	"slices"
)

// A Change is that the latest point of a series became another.
type Change struct {
	Owner  string
	Before Point
	Had    bool // there was a point before
	Now    Point
}

// followedAtOnce is how many owners Follow looks at while nobody else can append.
const followedAtOnce = 256

// follow notes which series of a key changed.
type follow struct {
	changed []changed
	ended   bool
}

type changed struct {
	x      *series
	before Point
	had    bool
}

// note is called before the latest point becomes another.
func (x *series) note() {
	if x.follow.ended {
		x.follow = nil
		return
	}
	x.noted = true
	x.follow.changed = append(x.follow.changed, changed{x, x.latest, x.count > 0})
}

// Follow begins to note what happens to the latest points under a key, and calls fn with those that
// there are, some at a time. Others append meanwhile, and fn may look at the set.
func (s *Set) Follow(key string, fn func([]Change)) {
	f := &follow{}
	s.mu.Lock()
	s.unfollow(key)
	s.followed[key] = f // series that are made from here on have it
	s.mu.Unlock()
	s.mu.RLock()
	owners := slices.Collect(maps.Values(s.owners))
	s.mu.RUnlock()
	for part := range slices.Chunk(owners, followedAtOnce) {
		fn(s.followOf(part, key, f))
	}
}

// followOf follows the series of some owners, and is what they have.
func (s *Set) followOf(owners []*owner, key string, f *follow) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Change
	for _, o := range owners {
		x := o.find(key)
		if x == nil || x.follow == f || s.owners[o.name] != o { // dropped meanwhile
			continue
		}
		x.follow, x.noted = f, false
		if x.count > 0 {
			out = append(out, Change{Owner: o.name, Now: x.latest})
		}
	}
	return out
}

// Behind is how many changes Changes has to tell of a key.
func (v View) Behind(key string) int {
	if f := v.s.followed[key]; f != nil {
		return len(f.changed)
	}
	return 0
}

// Changes is what happened to the latest points under a key that is followed since it was asked for
// last, and at most so many changes at a time.
func (s *Set) Changes(key string, most int) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.followed[key]
	if f == nil || len(f.changed) == 0 {
		return nil
	}
	out := make([]Change, min(len(f.changed), most))
	for i, c := range f.changed[:len(out)] {
		out[i] = Change{Owner: c.x.owner.name, Before: c.before, Had: c.had, Now: c.x.latest}
		c.x.noted = false
	}
	if f.changed = f.changed[len(out):]; len(f.changed) == 0 {
		f.changed = nil
	}
	return out
}

// Unfollow ends what Follow began.
func (s *Set) Unfollow(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unfollow(key)
}

func (s *Set) unfollow(key string) {
	if f := s.followed[key]; f != nil {
		f.ended, f.changed = true, nil
		delete(s.followed, key)
	}
}
