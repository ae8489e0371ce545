package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Holder is a gang that has, or may have, GPUs of a node.
type Holder struct {
	ID   string // the gang's
	Name string // the job's
	GPUs int    // as Gang.GPUs
}

// Holders are those of one node, by ID.
type Holders []Holder

// With is the holders and one more. Those that are shared are not changed.
func (h Holders) With(g Gang) Holders {
	if g.GPUs < 0 {
		return h
	}
	i, found := h.find(g.ID)
	if found {
		return h
	}
	return slices.Insert(slices.Clone(h), i, Holder{ID: g.ID, Name: g.name(), GPUs: g.GPUs})
}

// Without is the holders without one.
func (h Holders) Without(id string) Holders {
	i, found := h.find(id)
	if !found {
		return h
	}
	return slices.Delete(slices.Clone(h), i, i+1)
}

func (h Holders) find(id string) (int, bool) {
	return slices.BinarySearchFunc(h, id, func(x Holder, id string) int { return strings.Compare(x.ID, id) })
}

// In a pool that gives out GPUs a gang needs a slot and its GPUs on each of its nodes. It goes
// where the fewest GPUs are free that will do, so that large gangs find theirs together. The head
// keeps a slot, and all GPUs, of every node that has as many as it needs: later gangs get what it
// has no use for.

// gpus is what is known of the GPUs of a node during a round.
type gpus struct {
	free    int
	holders Holders // those of the pool, and the gangs that this round placed
}

func (s *round) openGPUs() {
	if !s.pool.GPUs {
		return
	}
	s.gpus = make([]gpus, len(s.pool.Nodes))
	for i := range s.pool.Nodes {
		n := &s.pool.Nodes[i]
		s.gpus[i] = gpus{n.GPUs, n.Holders}
		for _, h := range n.Holders {
			s.gpus[i].free -= n.takes(h.GPUs)
		}
	}
}

// takes is how many GPUs of a node a gang has that asks for so many.
func (n *Node) takes(asks int) int {
	if asks == 0 {
		return n.Share
	}
	return max(0, asks)
}

// able is whether a node could ever run a gang.
func (s *round) able(n int32, g *Gang) bool {
	node := &s.pool.Nodes[n]
	return node.takes(g.GPUs) <= node.GPUs
}

// suits is whether a node with a free slot has the GPUs for a gang now.
func (s *round) suits(n int32, g *Gang) bool {
	takes := s.pool.Nodes[n].takes(g.GPUs)
	return takes == 0 || takes <= s.gpus[n].free
}

// seats is how many nodes have room for a gang now.
func (s *round) seats(g *Gang) (nodes int) {
	if s.gpus == nil {
		return s.avail()
	}
	for _, n := range s.stock.nodes {
		if s.suits(n, g) {
			nodes++
		}
	}
	return nodes
}

// seat gives a gang nodes among those that may says; nil, and nothing, where they are too few.
func (s *round) seat(g *Gang, may func(int32) bool) []string {
	var all []int32
	for _, n := range s.stock.nodes {
		if s.suits(n, g) && may(n) {
			all = append(all, n)
		}
	}
	if len(all) < g.Nodes {
		return nil
	}
	slices.SortFunc(all, func(i, k int32) int {
		if c := cmp.Compare(s.gpus[i].free, s.gpus[k].free); c != 0 && g.GPUs != 0 && !s.pool.Spread {
			return c
		}
		return b2i(s.stock.less(k, i)) - b2i(s.stock.less(i, k))
	})
	all = all[:g.Nodes]
	slices.Sort(all) // ranks follow the order of nodes
	on := s.room(g.Nodes)
	for i, n := range all {
		node, have := &s.pool.Nodes[n], &s.gpus[n]
		on[i] = node.Name
		s.free[n]--
		have.free -= node.takes(g.GPUs)
		have.holders = have.holders.With(*g)
	}
	s.stock.nodes = slices.DeleteFunc(s.stock.nodes, func(n int32) bool { return s.free[n] <= 0 })
	s.stock.order()
	return on
}

// fillGPUs is fill where GPUs count.
func (s *round) fillGPUs(g *Gang) bool {
	on := s.seat(g, func(n int32) bool {
		return !s.able(n, s.head) || s.free[n] > 1 && s.pool.Nodes[n].takes(g.GPUs) == 0
	})
	if on == nil {
		return false
	}
	s.out = append(s.out, Choice{Gang: g.ID, Nodes: on, Why: s.filled(on, false)})
	return true
}

// unfit is why a gang finds the GPUs that it asks for on no node however long it waits; empty when
// it may.
func (s *round) unfit(g *Gang) string {
	if g.GPUs <= 0 {
		return ""
	}
	all, ready, most := 0, 0, 0
	for i := range s.pool.Nodes {
		n := &s.pool.Nodes[i]
		if most = max(most, n.GPUs); s.able(int32(i), g) {
			all++
			ready += b2i(n.Ready)
		}
	}
	if ready >= g.Nodes || all >= g.Nodes && s.pool.Short == "" {
		return ""
	}
	return s.once(g, func() string {
		why := fmt.Sprintf("needs a machine with %s, and no machine of %s has more than %d", count(g.GPUs, "GPU"), s.pool.Name, most)
		switch {
		case most == 0:
			why = fmt.Sprintf("needs a machine with %s, and no machine of %s is known to have any", count(g.GPUs, "GPU"), s.pool.Name)
		case all >= g.Nodes:
			why = fmt.Sprintf("needs %s with %s, and %s has %d that takes jobs now", machines(g.Nodes), each(g), s.pool.Name, ready)
		case all > 0:
			why = fmt.Sprintf("needs %s with %s, and %s has %d", machines(g.Nodes), each(g), s.pool.Name, all)
		}
		if s.pool.Short != "" {
			why += ": " + s.pool.Short
		}
		return why
	})
}

// machines counts nodes that are machines of somebody's own.
func machines(n int) string {
	if n == 1 {
		return "a machine"
	}
	return count(n, "machine")
}

// each is the GPUs that a gang asks for on each of its nodes.
func each(g *Gang) string {
	if g.Nodes > 1 {
		return count(g.GPUs, "GPU") + " each"
	}
	return count(g.GPUs, "GPU")
}

// namedMost is how many machines and jobs a sentence names.
const namedMost = 3

// lackGPUs is why too few of the nodes that could run a gang have its GPUs free.
func (s *round) lackGPUs(g *Gang) string {
	what := "its share of the GPUs of a machine"
	switch {
	case g.GPUs > 0 && g.Nodes > 1:
		what = machines(g.Nodes) + " with " + each(g)
	case g.GPUs > 0:
		what = count(g.GPUs, "GPU")
	case g.Nodes > 1:
		what = machines(g.Nodes) + " with a share of their GPUs each"
	}
	var parts []string
	more := 0
	for i := range s.pool.Nodes {
		n := &s.pool.Nodes[i]
		var part string
		switch has := s.gpus[i].free; {
		case !n.Ready || !s.able(int32(i), g):
			continue
		case !s.suits(int32(i), g):
			part = fmt.Sprintf("%d of %s of %s %s in use by %s", n.GPUs-has, count(n.GPUs, "GPU"), n.Name, isAre(n.GPUs-has), s.gpus[i].holders.say(n))
		case s.free[i] <= 0:
			part = n.Name + " has no free slot"
		default:
			continue
		}
		if len(parts) < namedMost {
			parts = append(parts, part)
		} else {
			more++
		}
	}
	if more > 0 {
		parts = append(parts, count(more, "machine")+" more have no room either")
	}
	return "needs " + what + ": " + strings.Join(parts, "; ")
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// say names those that have GPUs of a node.
func (h Holders) say(n *Node) string {
	var names []string
	for _, x := range h {
		if n.takes(x.GPUs) > 0 {
			names = append(names, x.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case len(names) == 1:
		return "job " + names[0]
	case len(names) > namedMost:
		return fmt.Sprintf("jobs %s and %s", strings.Join(names[:namedMost-1], ", "), count(len(names)-namedMost+1, "other"))
	case len(names) == 0:
		return "others" // it has fewer GPUs than it had
	}
	return "jobs " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
