package sched

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// victim is a gang that may be stopped for one of higher priority.
type victim struct {
	*Running
	on   []int32 // those of its nodes that are ready
	gain int     // how many of them have no free slot and would have one
	told bool    // to stop, by a choice of this round
	i    int32   // in victims.all
	at   int     // in victims.by, -1 when it is not
}

// loss orders victims by what is lost with them: least with one of low priority, with few nodes,
// that began late.
func (v *victim) loss(w *victim) int {
	if c := cmp.Or(cmp.Compare(v.Priority, w.Priority), cmp.Compare(len(v.On), len(w.On))); c != 0 {
		return c
	}
	return cmp.Or(w.Since.Compare(v.Since), strings.Compare(v.ID, w.ID))
}

// victims is the gangs that may be stopped for one of some priority: a heap with the one that frees
// the most nodes first, and of those the one with the least loss. What they would free follows the
// outlook's slots: see move.
type victims struct {
	priority int
	all      []victim
	by       []int32 // indices of all
	free     []int   // the outlook's
	// on[from[n]:from[n+1]] is the indices of all that are on node n, and could[n] how many of them
	// are in by.
	on, from []int32
	could    []int
}

// market is the victims for a gang.
func (s *round) market(g *Gang) *victims {
	if s.victims == nil {
		s.victims = s.newVictims()
		s.victims.open(g.Priority)
	} else if s.victims.priority != g.Priority { // gangs come by priority: it is lower
		s.victims.open(g.Priority)
	}
	return s.victims
}

func (s *round) newVictims() *victims {
	m := &victims{free: s.outlook.stock.free, from: make([]int32, len(s.pool.Nodes)+1), could: make([]int, len(s.pool.Nodes))}
	tasks := 0
	for i := range s.running {
		if r := &s.running[i]; r.Spot && !r.Stopping && r.Priority < s.head.Priority {
			m.all = append(m.all, victim{Running: r, i: int32(len(m.all))})
			tasks += len(r.On)
		}
	}
	room := make([]int32, 0, tasks)
	for i := range m.all {
		begin := len(room)
		for _, name := range m.all[i].On {
			if n, ok := s.index(name); ok {
				room = append(room, n)
				m.from[n+1]++
			}
		}
		m.all[i].on = room[begin:]
	}
	for n := range s.pool.Nodes {
		m.from[n+1] += m.from[n]
	}
	m.on = make([]int32, len(room))
	next := slices.Clone(m.from)
	for i := range m.all {
		for _, n := range m.all[i].on {
			m.on[next[n]] = int32(i)
			next[n]++
		}
	}
	return m
}

// open offers those of lower priority than this.
func (m *victims) open(priority int) {
	m.priority = priority
	m.by = m.by[:0]
	clear(m.could)
	for i := range m.all {
		v := &m.all[i]
		if v.told || v.Priority >= priority {
			v.at = -1
			continue
		}
		v.gain, v.at = 0, len(m.by)
		for _, n := range v.on {
			m.could[n]++
			if m.free[n] == 0 {
				v.gain++
			}
		}
		m.by = append(m.by, v.i)
	}
	heap.Init(m)
}

// most is how many nodes become usable when all of them are stopped.
func (m *victims) most() (n int) {
	for i, free := range m.free {
		if free <= 0 && free+m.could[i] > 0 {
			n++
		}
	}
	return n
}

// choose finds gangs whose nodes are what a gang lacks: as few as can be found, and with the least
// loss of those that will do. None when stopping all of them would not be enough. They count as
// stopping from now on.
func (m *victims) choose(lack int) (chosen []*victim) {
	if m.most() < lack {
		return nil
	}
	got := 0
	for got < lack {
		v := &m.all[m.by[0]]
		if v.gain > lack-got {
			v = m.least(lack - got)
		}
		chosen = append(chosen, v)
		got += m.stop(v)
	}
	// Some may turn out not to be needed; the one that has run longest is let run first.
	byAge := slices.Clone(chosen)
	slices.SortFunc(byAge, func(a, b *victim) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	for _, v := range byAge {
		lost := 0
		for _, n := range v.on {
			if m.free[n] == 1 {
				lost++
			}
		}
		if lost <= got-lack {
			got -= lost
			m.spare(v)
			chosen = slices.DeleteFunc(chosen, func(c *victim) bool { return c == v })
		}
	}
	return chosen
}

// least is the one with the least loss among those that are enough by themselves.
func (m *victims) least(lack int) *victim {
	best := &m.all[m.by[0]]
	for _, i := range m.by {
		if v := &m.all[i]; v.gain >= lack && v.loss(best) < 0 {
			best = v
		}
	}
	return best
}

// stop takes a victim out and frees its slots. It says how many nodes have become usable.
func (m *victims) stop(v *victim) (gain int) {
	v.told = true
	heap.Remove(m, v.at)
	for _, n := range v.on {
		m.could[n]--
		if m.move(n, 1); m.free[n] == 1 {
			gain++
		}
	}
	return gain
}

// spare undoes stop.
func (m *victims) spare(v *victim) {
	v.told, v.gain = false, 0
	for _, n := range v.on {
		m.could[n]++
		if m.move(n, -1); m.free[n] == 0 {
			v.gain++
		}
	}
	heap.Push(m, v.i)
}

// move changes the slots that a node will have free.
func (m *victims) move(n int32, by int) {
	was := m.free[n]
	m.free[n] += by
	if change := b2i(m.free[n] == 0) - b2i(was == 0); change != 0 {
		for _, i := range m.on[m.from[n]:m.from[n+1]] {
			if v := &m.all[i]; v.at >= 0 {
				v.gain += change
				heap.Fix(m, v.at)
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *victims) Len() int { return len(m.by) }

func (m *victims) Less(i, k int) bool {
	v, w := &m.all[m.by[i]], &m.all[m.by[k]]
	if v.gain != w.gain {
		return v.gain > w.gain
	}
	return v.loss(w) < 0
}

func (m *victims) Swap(i, k int) {
	m.by[i], m.by[k] = m.by[k], m.by[i]
	m.all[m.by[i]].at, m.all[m.by[k]].at = i, k
}

func (m *victims) Push(x any) {
	m.all[x.(int32)].at = len(m.by)
	m.by = append(m.by, x.(int32))
}

func (m *victims) Pop() any {
	last := len(m.by) - 1
	x := m.by[last]
	m.all[x].at = -1
	m.by = m.by[:last]
	return x
}
