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
	gain int     // how many of them become usable
	told bool    // to stop, by a choice of this round
}

// spots are the gangs that may be stopped: the one whose loss is smallest first, which is one of low priority, with few nodes, that
// began late.
func (s *round) spots() []victim {
	if s.spot != nil {
		return s.spot
	}
	var by []*Running
	tasks := 0
	for i := range s.running {
		if r := &s.running[i]; r.Spot && !r.Stopping {
			by = append(by, r)
			tasks += len(r.On)
		}
	}
	slices.SortFunc(by, func(a, b *Running) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(len(a.On), len(b.On)), b.Since.Compare(a.Since), strings.Compare(a.ID, b.ID))
	})
	s.spot = make([]victim, len(by))
	on := make([]int32, 0, tasks)
	for i, r := range by {
		from := len(on)
		for _, name := range r.On {
			if n, ok := s.index(name); ok {
				on = append(on, n)
			}
		}
		s.spot[i] = victim{Running: r, on: on[from:]}
	}
	return s.spot
}

// victims finds gangs of lower priority than g whose nodes are what it lacks: as few as can be found, and with the smallest loss of
// those that will do. None when stopping all of them would not be enough. They count as stopping from now on.
func (s *round) victims(g *Gang, lack int) []*Running {
	if !s.pool.Preempt {
		return nil
	}
	all := s.spots()
	free := slices.Clone(s.outlook.stock.free)
	left := bids{all: all, by: s.bids[:0]}
	one, most := -1, 0
	for i := range all {
		v := &all[i]
		if v.Priority >= g.Priority {
			break
		}
		if v.told {
			continue
		}
		v.count(s.outlook.stock.free)
		if v.gain >= lack && one < 0 {
			one = i
		}
		most += v.release(free)
		left.by = append(left.by, int32(i))
	}
	s.bids = left.by
	if most < lack {
		return nil
	}
	chosen := []int32{int32(one)}
	if one < 0 {
		chosen = left.choose(slices.Clone(s.outlook.stock.free), lack)
	}
	out := make([]*Running, len(chosen))
	for i, k := range chosen {
		all[k].told = true
		out[i] = all[k].Running
	}
	return out
}

func (v *victim) count(free []int) {
	v.gain = 0
	for _, n := range v.on {
		if free[n] == 0 {
			v.gain++
		}
	}
}

// release frees its slots and says how many nodes have become usable.
func (v *victim) release(free []int) (gain int) {
	for _, n := range v.on {
		if free[n]++; free[n] == 1 {
			gain++
		}
	}
	return gain
}

// bids is a heap of victims: the one that frees the most nodes first, and of those the one whose loss is smallest.
type bids struct {
	all []victim
	by  []int32 // indices of all
}

// choose takes victims until there is enough.
func (b *bids) choose(free []int, lack int) (chosen []int32) {
	heap.Init(b)
	got := 0
	for got < lack {
		k := b.by[0]
		v := &b.all[k]
		was := v.gain
		v.count(free)
		switch {
		case v.gain != was: // others freed some of its nodes meanwhile
			heap.Fix(b, 0)
			continue
		case v.gain >= lack-got:
			k = b.least(free, lack-got)
		default:
			heap.Pop(b)
		}
		chosen = append(chosen, k)
		got += b.all[k].release(free)
	}
	return b.spare(chosen, free, got-lack)
}

// least is the one whose loss is smallest among those that are enough by themselves: the first is.
func (b *bids) least(free []int, lack int) int32 {
	best := b.by[0]
	for _, k := range b.by {
		if k < best {
			if b.all[k].count(free); b.all[k].gain >= lack {
				best = k
			}
		}
	}
	return best
}

// spare takes back the choice of those that turn out not to be needed, the one that has run longest first.
func (b *bids) spare(chosen []int32, free []int, over int) []int32 {
	byAge := slices.Clone(chosen)
	slices.SortFunc(byAge, func(i, k int32) int {
		return cmp.Or(b.all[i].Since.Compare(b.all[k].Since), cmp.Compare(i, k))
	})
	for _, k := range byAge {
		lost := 0
		for _, n := range b.all[k].on {
			if free[n] == 1 {
				lost++
			}
		}
		if lost > over {
			continue
		}
		over -= lost
		for _, n := range b.all[k].on {
			free[n]--
		}
		chosen = slices.DeleteFunc(chosen, func(c int32) bool { return c == k })
	}
	return chosen
}

func (b *bids) Len() int { return len(b.by) }

func (b *bids) Less(i, k int) bool {
	x, y := b.by[i], b.by[k]
	return cmp.Or(cmp.Compare(b.all[y].gain, b.all[x].gain), cmp.Compare(x, y)) < 0
}

func (b *bids) Swap(i, k int) { b.by[i], b.by[k] = b.by[k], b.by[i] }

func (b *bids) Push(x any) { b.by = append(b.by, x.(int32)) }

func (b *bids) Pop() any {
	last := len(b.by) - 1
	x := b.by[last]
	b.by = b.by[:last]
	return x
}
