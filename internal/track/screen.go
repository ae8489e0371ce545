package track

import "context"

// lockedBytes is how many bytes of text one search compares with patterns while it has the index
// locked. What is left is compared without the lock.
const lockedBytes = 16 << 20

// A screen is the conditions of a search that compare texts with patterns, which can take long.
type screen struct {
	ctx      context.Context // of the caller, who may go: then nothing more is compared
	patterns []*clause
	left     int           // bytes that may still be compared under the lock
	known    map[*run]bool // whether runs meet all conditions
	full     bool          // more were asked for than could be compared
}

func (c *call) newScreen(s *search) *screen {
	out := &screen{ctx: c.ctx, left: lockedBytes}
	for i := range s.clauses {
		if k := &s.clauses[i]; k.hasPattern() {
			out.patterns = append(out.patterns, k)
		}
	}
	return out
}

func (k *clause) hasPattern() bool { return k.op == "LIKE" || k.op == "ILIKE" }

// keeps says whether a run meets the conditions, under the lock.
func (s *screen) keeps(r *run) bool {
	if keeps, ok := s.known[r]; ok {
		return keeps
	}
	if s.left < 0 {
		s.full = true
		return false
	}
	for _, k := range s.patterns {
		s.left -= r.patternBytes(k)
		if !r.matches(k, nil) {
			return false
		}
	}
	return true
}

// patternBytes is about how many bytes are looked at to compare a run with a pattern.
func (r *run) patternBytes(k *clause) int {
	switch k.of {
	case paramOfRun:
		return len(r.Params[k.key]) + len(k.text)
	case tagOf:
		return len(r.Tags[k.key]) + len(k.text)
	case datasetOf:
		return len(r.Datasets) * (maxDatasetName + len(k.text))
	}
	return len(r.attribute(k.key)) + len(k.text)
}

// settle compares runs without the lock, and says whether that was worth it: the caller may have
// gone.
func (s *screen) settle(runs []*run) bool {
	known := make(map[*run]bool, len(runs))
	for _, r := range runs {
		if s.ctx.Err() != nil {
			return false
		}
		keeps := true
		for _, k := range s.patterns {
			if keeps = r.matches(k, nil); !keeps {
				break
			}
		}
		known[r] = keeps
	}
	s.known, s.full, s.left = known, false, lockedBytes
	return true
}
