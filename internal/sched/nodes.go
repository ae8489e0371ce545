package sched

// stock is the nodes with free slots, the one to be given next first: a heap over the indices of a
// pool's nodes.
type stock struct {
	free   []int // of every node; shared between stocks
	spread bool  // most free slots first instead of fewest
	nodes  []int32
}

func (s *stock) less(i, k int32) bool {
	if x, y := s.free[i], s.free[k]; x != y {
		return x < y != s.spread
	}
	return i < k
}

func (s *stock) len() int { return len(s.nodes) }

// first is whether s's next node comes before that of c.
func (s *stock) first(c *stock) bool {
	return len(c.nodes) == 0 || len(s.nodes) > 0 && s.less(s.nodes[0], c.nodes[0])
}

func (s *stock) push(n int32) {
	s.nodes = append(s.nodes, n)
	for i := len(s.nodes) - 1; i > 0; {
		up := (i - 1) / 2
		if !s.less(s.nodes[i], s.nodes[up]) {
			return
		}
		s.nodes[i], s.nodes[up] = s.nodes[up], s.nodes[i]
		i = up
	}
}

func (s *stock) pop() int32 {
	n, last := s.nodes[0], len(s.nodes)-1
	s.nodes[0] = s.nodes[last]
	s.nodes = s.nodes[:last]
	s.sift(0)
	return n
}

// one takes a slot of the next node and leaves the node in its place.
func (s *stock) one() int32 {
	n := s.nodes[0]
	if s.free[n]--; s.free[n] == 0 {
		return s.pop()
	}
	s.sift(0)
	return n
}

func (s *stock) order() {
	for i := len(s.nodes)/2 - 1; i >= 0; i-- {
		s.sift(i)
	}
}

func (s *stock) sift(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(s.nodes); k++ {
			if s.less(s.nodes[k], s.nodes[least]) {
				least = k
			}
		}
		if least == i {
			return
		}
		s.nodes[i], s.nodes[least] = s.nodes[least], s.nodes[i]
		i = least
	}
}
