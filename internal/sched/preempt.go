package sched

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// victim is a gang that may be stopped for the head.
type victim struct {
	*Running
	gain int // nodes that this would free
}

// victims finds gangs of lower priority than g whose nodes are what it lacks: as few as can be found, and of those that will do the
// ones of the lowest priority, with the fewest nodes, that began last. None when stopping all of them would not be enough.
func (s *round) victims(g *Gang, lack int) []*Running {
	if !s.pool.Preempt {
		return nil
	}
	var left victims
	all := stock{free: slices.Clone(s.outlook.stock.free)}
	for i := range s.running {
		if r := &s.running[i]; r.Spot && r.Priority < g.Priority && !r.Stopping && !s.outlook.stop[r] {
			left = append(left, victim{r, s.gain(s.outlook.stock.free, r)})
			s.release(&all, r.On)
		}
	}
	if all.len() < lack {
		return nil
	}
	heap.Init(&left)
	got := stock{free: slices.Clone(s.outlook.stock.free)}
	var chosen []*Running
	for got.len() < lack {
		v := left[0]
		// What others freed meanwhile counts no more.
		if now := s.gain(got.free, v.Running); now != v.gain {
			left[0].gain = now
			heap.Fix(&left, 0)
			continue
		}
		at := 0
		if v.gain >= lack-got.len() {
			at = s.least(left, got.free, lack-got.len())
		}
		v = left[at]
		heap.Remove(&left, at)
		chosen = append(chosen, v.Running)
		s.release(&got, v.On)
	}
	return s.spare(chosen, got.free, got.len()-lack)
}

// gain is how many nodes become usable when a gang stops.
func (s *round) gain(free []int, r *Running) (n int) {
	for _, name := range r.On {
		if i, ok := s.index(name); ok && free[i] == 0 {
			n++
		}
	}
	return n
}

// least is the one whose loss is smallest among those that are enough by themselves.
func (s *round) least(left victims, free []int, lack int) int {
	best := -1
	for i := range left {
		if s.gain(free, left[i].Running) < lack {
			continue
		}
		if best < 0 || left[i].loss(left[best]) < 0 {
			best = i
		}
	}
	return best
}

// spare takes back the choice of gangs that turn out not to be needed, those that have run longest first.
func (s *round) spare(chosen []*Running, free []int, over int) []*Running {
	byAge := slices.Clone(chosen)
	slices.SortFunc(byAge, func(a, b *Running) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID))
	})
	for _, r := range byAge {
		lost := 0
		for _, name := range r.On {
			if i, ok := s.index(name); ok && free[i] == 1 {
				lost++
			}
		}
		if lost > over {
			continue
		}
		over -= lost
		for _, name := range r.On {
			if i, ok := s.index(name); ok {
				free[i]--
			}
		}
		chosen = slices.DeleteFunc(chosen, func(c *Running) bool { return c == r })
	}
	return chosen
}

// loss orders victims by what is lost with them.
func (v victim) loss(w victim) int {
	return cmp.Or(cmp.Compare(v.Priority, w.Priority), cmp.Compare(len(v.On), len(w.On)), w.Since.Compare(v.Since), strings.Compare(v.ID, w.ID))
}

// victims is a heap: the one that frees the most nodes first.
type victims []victim

func (v victims) Len() int { return len(v) }

func (v victims) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(v[k].gain, v[i].gain), v[i].loss(v[k])) < 0
}

func (v victims) Swap(i, k int) { v[i], v[k] = v[k], v[i] }

func (v *victims) Push(x any) { *v = append(*v, x.(victim)) }

func (v *victims) Pop() any {
	last := len(*v) - 1
	x := (*v)[last]
	*v = (*v)[:last]
	return x
}
