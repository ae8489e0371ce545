package sched

import (
	"fmt"
	"slices"
	"time"
)

// outlook is what gangs that wait can count on soon, in their order: nodes of gangs that are stopping, and nodes to come.
type outlook struct {
	stock stock // nodes that will have a free slot
	// come is how many nodes are yet to come: on their way, or within what the pool may grow by; slots are theirs that nobody
	// before counts on.
	come, slots int
	ends        []*Running // gangs that are stopping
	stale       bool       // a gang was placed since: the stock has nodes that are full
	// over is that somebody before waits for what nobody can name: later ones count on nothing.
	over bool
	// soon is that the head does not wait for that.
	soon bool
}

// survey opens the outlook.
func (s *round) survey() {
	o := &s.outlook
	o.come = s.pool.Starting
	if s.pool.Short == "" {
		o.come += max(0, s.pool.Max-s.ready-s.pool.Starting)
	}
	o.slots = o.come * max(1, s.slots)
	o.stock = stock{free: slices.Clone(s.free), spread: s.pool.Spread, nodes: slices.Clone(s.stock.nodes)}
	for i := range s.running {
		if r := &s.running[i]; r.Stopping {
			o.ends = append(o.ends, r)
			s.release(&o.stock, r.On)
		}
	}
	o.stock.order()
}

// await is what a gang that cannot be placed waits for, the gangs to be stopped for it, and whether that will be enough. Where it
// will, the gang's share is taken out of the outlook.
func (s *round) await(g *Gang) (why string, stop []string, ok bool) {
	o := &s.outlook
	if o.over {
		return "", nil, false
	}
	if o.stale {
		o.stale = false
		o.stock.nodes = slices.DeleteFunc(o.stock.nodes, func(n int32) bool { return o.stock.free[n] <= 0 })
		o.stock.order()
	}
	lack := g.Nodes - o.stock.len()
	switch start := min(lack, o.come, o.slots); {
	case lack <= 0:
		why = "waiting for " + jobs(o.ends) + " to stop"
	case start == lack && len(o.ends) > 0 && o.stock.len() > s.avail():
		why = fmt.Sprintf("waiting for %s of %s to start, and for %s to stop", nodes(lack), s.pool.Name, jobs(o.ends))
	case start == lack:
		why = fmt.Sprintf("waiting for %s of %s to start", nodes(lack), s.pool.Name)
	default:
		victims := s.victims(g, lack-start)
		if victims == nil {
			o.over = true
			return "", nil, false
		}
		for _, r := range victims {
			stop = append(stop, r.ID)
			s.release(&o.stock, r.On)
		}
		o.stock.order()
		o.ends = append(o.ends, victims...)
		why = "waiting for " + jobs(victims) + " of lower priority to stop"
	}
	rest := g.Nodes
	taken := make([]int32, min(rest, o.stock.len()))
	for i := range taken {
		taken[i] = o.stock.pop()
	}
	for _, n := range taken {
		if o.stock.free[n]--; o.stock.free[n] > 0 {
			o.stock.push(n)
		}
	}
	o.slots -= rest - len(taken)
	return why, stop, true
}

// release frees one slot on each of the nodes. Those that had none are added at the end: the stock must be put in order.
func (s *round) release(to *stock, on []string) {
	for _, name := range on {
		if i, ok := s.index(name); ok {
			if to.free[i]++; to.free[i] == 1 {
				to.nodes = append(to.nodes, i)
			}
		}
	}
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
	if !s.outlook.soon {
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
		at   time.Time
		on   []string
		sure bool
	}
	var ends []end
	for i := range s.running {
		switch r := &s.running[i]; {
		case r.Stopping:
			ends = append(ends, end{s.now, r.On, false})
		case r.Limit > 0:
			at := r.Since.Add(r.Limit)
			ends = append(ends, end{at, r.On, at.After(s.now)})
		}
	}
	for i := range s.out { // what was placed just now runs as well
		if c := &s.out[i]; len(c.Nodes) > 0 {
			if g := s.queue.gangs[c.Gang]; g.Limit > 0 {
				ends = append(ends, end{s.now.Add(g.Limit), c.Nodes, true})
			}
		}
	}
	slices.SortStableFunc(ends, func(a, b end) int { return a.at.Compare(b.at) })
	// What should have ended and nodes that are yet to come let the head start earlier, so they count for the time. That may fail,
	// so they do not count as something the head can do without.
	hope := stock{free: slices.Clone(k.then), nodes: slices.Clone(s.stock.nodes)}
	sure := stock{free: slices.Clone(k.then), nodes: slices.Clone(s.stock.nodes)}
	for i := 0; i < len(ends); {
		at := ends[i].at
		for ; i < len(ends) && ends[i].at.Equal(at); i++ {
			s.release(&hope, ends[i].on)
			if ends[i].sure {
				s.release(&sure, ends[i].on)
			}
		}
		if hope.len()+s.outlook.come < s.head.Nodes {
			continue
		}
		if at.After(s.now) {
			k.at, k.then, k.extra = at, sure.free, max(0, sure.len()-s.head.Nodes)
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
		s.outlook.stock.free[n]--
	}
	s.outlook.stale = true
	slices.Sort(taken)
	on := s.room(g.Nodes)
	for i, n := range taken {
		on[i] = s.pool.Nodes[n].Name
	}
	s.out = append(s.out, Choice{Gang: g.ID, Nodes: on, Why: s.filled(on, short)})
	return true
}
