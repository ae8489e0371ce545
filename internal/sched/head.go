package sched

import (
	"slices"
	"time"
)

// need is what the head lacks and what it may count on.
type need struct {
	free   int // nodes with a free slot
	ending int // nodes that have one once the gangs that were told to stop are gone
	// starting are on their way; grow is how many more the pool may still get.
	starting, grow int
	ends, stop     []*Running // gangs that are stopping, and those to be stopped now, for its sake
	// spare is how many of the nodes that are to come the gangs so far leave to others, and room how many slots those have.
	spare, room int
}

// want works out what the head waits for, and which gangs must be stopped for it.
func (s *round) want() (stop []string) {
	n := &s.need
	n.free, n.starting = s.stock.len(), s.pool.Starting
	if s.pool.Short == "" {
		n.grow = max(0, s.pool.Max-s.ready-s.pool.Starting)
	}
	free := s.free
	for i := range s.running {
		r := &s.running[i]
		if !r.Stopping {
			continue
		}
		if len(n.ends) == 0 {
			free = slices.Clone(free)
		}
		if gain := s.release(free, r.On); gain > 0 {
			n.ending += gain
		}
		n.ends = append(n.ends, r)
	}
	lack := s.head.Nodes - n.free - n.ending
	n.spare = max(0, n.starting+n.grow-max(0, lack))
	n.room = n.spare * max(1, s.slots)
	if lack -= n.starting + n.grow; lack > 0 && s.pool.Preempt {
		n.stop = s.victims(lack, free)
		for _, r := range n.stop {
			stop = append(stop, r.ID)
		}
	}
	return stop
}

// release frees one slot on each of the nodes and says how many could not be used before and can now.
func (s *round) release(free []int, on []string) (gain int) {
	for _, name := range on {
		if i, ok := s.index(name); ok {
			if free[i]++; free[i] == 1 {
				gain++
			}
		}
	}
	return gain
}

// index is the place of a node that is ready.
func (s *round) index(name string) (int32, bool) {
	if s.where == nil {
		s.where = make(map[string]int32, len(s.pool.Nodes))
		for i := range s.pool.Nodes {
			if s.pool.Nodes[i].Ready {
				s.where[s.pool.Nodes[i].Name] = int32(i)
			}
		}
	}
	i, ok := s.where[name]
	return i, ok
}

// reserve is what is kept for the head.
type reserve struct {
	// at is when the head can start at the latest, by the limits of what runs; zero when that may be at any moment or nobody knows.
	at    time.Time
	then  []int // free slots of each node at that time
	extra int   // how many nodes with a free slot there will be beyond what the head needs
	// roomy are nodes that have a slot for the head even if another is taken, tight those that have not. Both have a free slot now.
	roomy, tight stock
}

// reserve finds out when the head can start and on how many nodes it does not depend.
func (s *round) reserve() *reserve {
	k := &reserve{then: slices.Clone(s.free)}
	soon := s.head.Nodes <= s.need.free+s.need.ending+s.need.starting+s.need.grow || len(s.need.stop) > 0
	if !soon {
		k.until(s)
	}
	k.roomy = stock{free: s.free, spread: s.pool.Spread}
	k.tight = k.roomy
	for _, n := range s.stock.nodes {
		k.put(n)
	}
	s.stock.nodes = nil
	return k
}

// put offers a node with a free slot.
func (k *reserve) put(n int32) {
	if k.then[n] > 1 {
		k.roomy.push(n)
	} else {
		k.tight.push(n)
	}
}

// until looks for the time at which the head has its nodes.
func (k *reserve) until(s *round) {
	type end struct {
		at time.Time
		on []string
	}
	var ends []end
	for i := range s.running {
		switch r := &s.running[i]; {
		case r.Stopping:
			ends = append(ends, end{s.now, r.On})
		case r.Limit > 0:
			ends = append(ends, end{r.Since.Add(r.Limit), r.On})
		}
	}
	for i := range s.out { // what was placed just now runs as well
		if c := &s.out[i]; len(c.Nodes) > 0 {
			if g := s.queue.gangs[c.Gang]; g.Limit > 0 {
				ends = append(ends, end{s.now.Add(g.Limit), c.Nodes})
			}
		}
	}
	slices.SortStableFunc(ends, func(a, b end) int { return a.at.Compare(b.at) })
	then := slices.Clone(k.then)
	// Nodes that are yet to come let the head start earlier, so they count for the time; they may fail to come, so they do not
	// count as extra.
	have, hope := s.need.free, s.need.starting+s.need.grow
	for i := 0; i < len(ends); {
		at := ends[i].at
		for ; i < len(ends) && ends[i].at.Equal(at); i++ {
			have += s.release(then, ends[i].on)
		}
		if have+hope < s.head.Nodes {
			continue
		}
		if at.After(s.now) {
			k.at, k.then, k.extra = at, then, max(0, have-s.head.Nodes)
		}
		return
	}
}

// avail is how many nodes have a free slot now.
func (s *round) avail() int {
	if s.keep != nil {
		return s.keep.roomy.len() + s.keep.tight.len()
	}
	return s.stock.len()
}

// fill places a gang that comes after the head if that does not make the head wait longer.
func (s *round) fill(g *Gang) bool {
	if g.Nodes > s.avail() {
		return false
	}
	if s.keep == nil {
		s.keep = s.reserve()
	}
	k := s.keep
	short := !k.at.IsZero() && g.Limit > 0 && !s.now.Add(g.Limit).After(k.at)
	if !short && g.Nodes > k.roomy.len()+min(k.extra, k.tight.len()) {
		return false
	}
	taken := make([]int32, g.Nodes)
	for i := range taken {
		switch {
		case short && k.tight.first(&k.roomy), !short && k.roomy.len() == 0:
			taken[i] = k.tight.pop()
		default:
			taken[i] = k.roomy.pop()
		}
	}
	for _, n := range taken {
		if !short {
			if k.then[n]--; k.then[n] == 0 {
				k.extra--
			}
		}
		if s.free[n]--; s.free[n] > 0 {
			k.put(n)
		}
	}
	slices.Sort(taken)
	on := s.room(g.Nodes)
	for i, n := range taken {
		on[i] = s.pool.Nodes[n].Name
	}
	s.out = append(s.out, Choice{Gang: g.ID, Nodes: on, Why: s.filled(on, short)})
	return true
}
