package points

// A Change is that the latest point of a series became another.
type Change struct {
	Owner  string
	Before Point
	Had    bool // there was a point before
	Now    Point
}

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

// Changed says whether Changes has something to say of a key.
func (v View) Changed(key string) bool {
	f := v.s.followed[key]
	return f == nil || len(f.changed) > 0
}

// Changes is what happened to the latest points under a key since it was asked for last; at first
// it is all of them.
func (s *Set) Changes(key string) []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.followed[key]
	if f == nil {
		return s.begin(key)
	}
	out := make([]Change, len(f.changed))
	for i, c := range f.changed {
		out[i] = Change{Owner: c.x.owner.name, Before: c.before, Had: c.had, Now: c.x.latest}
		c.x.noted = false
	}
	f.changed = nil
	return out
}

// begin follows a key. The caller holds mu.
func (s *Set) begin(key string) []Change {
	f := &follow{}
	s.followed[key] = f
	var out []Change
	for _, o := range s.owners {
		x := o.find(key)
		if x == nil {
			continue
		}
		x.follow, x.noted = f, false
		if x.count > 0 {
			out = append(out, Change{Owner: o.name, Now: x.latest})
		}
	}
	return out
}

// Unfollow ends what Changes began.
func (s *Set) Unfollow(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.followed[key]; f != nil {
		f.ended, f.changed = true, nil
		delete(s.followed, key)
	}
}
