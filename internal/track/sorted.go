package track

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"strings"
)

// A node is a run's place in the index: it stays when the run is changed. Its start, id and
// experiment do not change.
type node struct {
	r *run // nil once it is gone: columns of metrics may have the node still
	// newest orders runs as answers do: those that began later have a smaller one. It and the id
	// are read without the lock.
	newest int64
	id     string
}

func nodeOf(r *run) *node { return &node{r: r, newest: ^r.Start, id: r.ID} }

// compareNodes is the order of answers: by start, newest first, then by id.
func compareNodes(a, b *node) int {
	if c := cmp.Compare(a.newest, b.newest); c != 0 {
		return c
	}
	return strings.Compare(a.id, b.id)
}

// sorted is a list of runs by a key, and those of the same key in the order of answers. It is kept
// in blocks, so that a change moves few of them however many there are.
type sorted[K cmp.Ordered] struct {
	blocks [][]item[K] // none is empty
	size   int
}

type item[K cmp.Ordered] struct {
	key K
	n   *node
}

// blockSize is how many items a block has at first; with twice as many it becomes two.
const blockSize = 512

// A place is before an item, or behind the last.
type place struct{ block, at int }

func (p place) before(q place) bool { return p.block < q.block || p.block == q.block && p.at < q.at }

func compareItems[K cmp.Ordered](a, b item[K]) int {
	if c := cmp.Compare(a.key, b.key); c != 0 {
		return c
	}
	return compareNodes(a.n, b.n)
}

// fill is a list of items, in any order.
func fill[K cmp.Ordered](items []item[K]) *sorted[K] {
	slices.SortFunc(items, compareItems)
	s := &sorted[K]{size: len(items)}
	for b := range slices.Chunk(items, blockSize) {
		s.blocks = append(s.blocks, slices.Clone(b))
	}
	return s
}

func (s *sorted[K]) end() place { return place{len(s.blocks), 0} }

// seek is the place of the first item that is not before; those that are come first.
func (s *sorted[K]) seek(before func(item[K]) bool) place {
	b := sort.Search(len(s.blocks), func(i int) bool { return !before(s.blocks[i][len(s.blocks[i])-1]) })
	if b == len(s.blocks) {
		return s.end()
	}
	return place{b, sort.Search(len(s.blocks[b]), func(i int) bool { return !before(s.blocks[b][i]) })}
}

// before is the place before another, which is not the first.
func (s *sorted[K]) before(p place) place {
	if p.at == 0 {
		return place{p.block - 1, len(s.blocks[p.block-1]) - 1}
	}
	return place{p.block, p.at - 1}
}

func (s *sorted[K]) insert(key K, n *node) {
	it := item[K]{key, n}
	s.size++
	p := s.seek(func(x item[K]) bool { return compareItems(x, it) < 0 })
	if p.block == len(s.blocks) {
		if p.block == 0 {
			s.blocks = [][]item[K]{{it}}
			return
		}
		p = place{p.block - 1, len(s.blocks[p.block-1])}
	}
	b := slices.Insert(s.blocks[p.block], p.at, it)
	if len(b) < 2*blockSize {
		s.blocks[p.block] = b
		return
	}
	s.blocks[p.block] = slices.Clone(b[:blockSize])
	s.blocks = slices.Insert(s.blocks, p.block+1, slices.Clone(b[blockSize:]))
}

// remove takes an item out and says whether it was there.
func (s *sorted[K]) remove(key K, n *node) bool {
	it := item[K]{key, n}
	p := s.seek(func(x item[K]) bool { return compareItems(x, it) < 0 })
	if p == s.end() || s.blocks[p.block][p.at].n != n {
		return false
	}
	s.size--
	if s.blocks[p.block] = slices.Delete(s.blocks[p.block], p.at, p.at+1); len(s.blocks[p.block]) == 0 {
		s.blocks = slices.Delete(s.blocks, p.block, p.block+1)
	}
	return true
}

// count is how many items are between two places.
func (s *sorted[K]) count(from, to place) int {
	n := to.at - from.at
	for b := from.block; b < to.block; b++ {
		n += len(s.blocks[b])
	}
	return max(n, 0)
}

// between is the items between two places.
func (s *sorted[K]) between(from, to place) iter.Seq[item[K]] {
	return func(yield func(item[K]) bool) {
		for b := from.block; b <= to.block && b < len(s.blocks); b++ {
			block := s.blocks[b]
			if b == to.block {
				block = block[:to.at]
			}
			if b == from.block {
				block = block[min(from.at, len(block)):]
			}
			for _, it := range block {
				if !yield(it) {
					return
				}
			}
		}
	}
}

// backward is the items between two places by falling keys; those of the same key are in the order
// of answers still.
func (s *sorted[K]) backward(from, to place) iter.Seq[item[K]] {
	return func(yield func(item[K]) bool) {
		for from.before(to) {
			last := s.before(to)
			key := s.blocks[last.block][last.at].key
			first := s.seek(func(x item[K]) bool { return cmp.Less(x.key, key) })
			if first.before(from) {
				first = from
			}
			for it := range s.between(first, to) {
				if !yield(it) {
					return
				}
			}
			to = first
		}
	}
}
