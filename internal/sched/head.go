package sched

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// outlook is what gangs that wait can count on soon, in their order: nodes of gangs that are
// stopping, and nodes to come.
type outlook struct {
	stock stock // nodes that will have a free slot
	// come is how many nodes are yet to come: on their way, or within what the pool may grow by;
	// slots are theirs that nobody before counts on.
	come, slots int
	ends        []*Running // gangs that are stopping
	stale       bool       // a gang was placed since: the stock has nodes that are full
	lent        bool       // a gang counts on slots of it since that were spare before
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

// await is what a gang that cannot be placed waits for, the gangs to be stopped for it, and whether
// that will be enough. Where it will, the gang's share is taken out of the outlook.
func (s *round) await(g *Gang) (why string, stop []string, ok bool) {
	o := &s.outlook
	if o.over || s.gpus != nil { // nobody knows when a GPU is free
		o.over = true
		return "", nil, false
	}
	if o.stale {
		o.stale = false
		s.restock()
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
		victims := s.preempt(g, lack-start)
		if victims == nil {
			o.over = true
			return "", nil, false
		}
		for _, r := range victims {
			stop = append(stop, r.ID)
		}
		why = "waiting for " + jobs(victims) + " of lower priority to stop"
	}
	rest := g.Nodes
	taken := make([]int32, min(rest, o.stock.len()))
	for i := range taken {
		taken[i] = o.stock.pop()
	}
	for _, n := range taken {
		if s.lend(n); o.stock.free[n] > 0 {
			o.stock.push(n)
		}
	}
	o.slots -= rest - len(taken)
	o.lent = true
	return why, stop, true
}

// preempt finds gangs to be stopped for g, which lacks nodes, and adds theirs to the outlook.
func (s *round) preempt(g *Gang, lack int) (stop []*Running) {
	if !s.pool.Preempt {
		return nil
	}
	for _, v := range s.market(g).choose(lack) {
		stop = append(stop, v.Running)
	}
	if len(stop) > 0 {
		s.outlook.ends = append(s.outlook.ends, stop...)
		s.restock()
	}
	return stop
}

// restock finds again the nodes that will have a free slot.
func (s *round) restock() {
	o := &s.outlook.stock
	o.nodes = o.nodes[:0]
	for i := range s.pool.Nodes {
		if o.free[i] > 0 && s.pool.Nodes[i].Ready {
			o.nodes = append(o.nodes, int32(i))
		}
	}
	o.order()
}

// lend takes a slot out of the outlook.
func (s *round) lend(n int32) {
	if s.victims != nil {
		s.victims.move(n, -1)
	} else {
		s.outlook.stock.free[n]--
	}
}

// release frees one slot on each of the nodes. Those that had none are added at the end: the stock
// must be put in order.
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
	// at is when the head can start at the latest, by the limits of what runs; zero when nobody
	// knows.
	at    time.Time
	then  []int // free slots of each node at that time
	extra int   // how many nodes with a free slot there will be beyond what the head needs
	// roomy are nodes that have a slot for the head, and for those after it that wait for no more
	// than what they will have soon, even if another is taken; tight are those that have not. Both
	// have a free slot now.
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
		s.offer(k, n)
	}
	s.stock.nodes = nil
	return k
}

// offer puts back a node with a free slot.
func (s *round) offer(k *reserve, n int32) {
	if k.then[n] > 1 && (!s.outlook.soon || s.outlook.stock.free[n] > 0) {
		k.roomy.push(n)
	} else {
		k.tight.push(n)
	}
}

// until looks for the time at which the head has its nodes.
func (k *reserve) until(s *round) {
	type end struct {
		in   time.Duration
		on   []string
		sure bool
	}
	ends := make([]end, 0, len(s.running)+len(s.out))
	for i := range s.running {
		switch r := &s.running[i]; {
		case r.Stopping:
			ends = append(ends, end{0, r.On, false})
		case r.Limit > 0:
			in := r.Since.Add(r.Limit).Sub(s.now)
			ends = append(ends, end{max(0, in), r.On, in > 0})
		}
	}
	for i := range s.out { // what was placed just now runs as well
		if c := &s.out[i]; len(c.Nodes) > 0 {
			if g, _ := s.queue.gangs.Get(c.Gang); g.Limit > 0 {
				ends = append(ends, end{g.Limit, c.Nodes, true})
			}
		}
	}
	by := make([]int32, len(ends))
	for i := range by {
		by[i] = int32(i)
	}
	slices.SortFunc(by, func(a, b int32) int { return cmp.Compare(ends[a].in, ends[b].in) })
	// What should have ended and nodes that are yet to come let the head start earlier, so they
	// count for the time. That may fail, so they do not count as something the head can do without.
	hope := stock{free: slices.Clone(k.then), nodes: slices.Clone(s.stock.nodes)}
	sure := stock{free: slices.Clone(k.then), nodes: slices.Clone(s.stock.nodes)}
	for i := 0; i < len(by); {
		in := ends[by[i]].in
		for ; i < len(by) && ends[by[i]].in == in; i++ {
			e := &ends[by[i]]
			s.release(&hope, e.on)
			if e.sure {
				s.release(&sure, e.on)
			}
		}
		if hope.len()+s.outlook.come >= s.head.Nodes {
			k.at, k.then, k.extra = s.now.Add(in), sure.free, max(0, sure.len()-s.head.Nodes)
			return
		}
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
	if g.Nodes > s.seats(g) {
		return false
	}
	if s.gpus != nil {
		return s.fillGPUs(g)
	}
	if s.keep == nil {
		s.keep = s.reserve()
	}
	k := s.keep
	if s.outlook.soon && s.outlook.lent { // somebody counts on slots that were spare
		s.outlook.lent = false
		all := k.roomy.nodes
		k.roomy.nodes = nil
		for _, n := range all {
			s.offer(k, n)
		}
	}
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
		s.lend(n)
		if s.free[n]--; s.free[n] > 0 {
			s.offer(k, n)
		}
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
