package track

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
)

// A span is a part of a column. Runs with the same value are in the same spans.
type span struct{ from, to place }

// overlap is what two lists of spans have in common. The spans of a list are apart, and in order.
func overlap(a, b []span) []span {
	var out []span
	for len(a) > 0 && len(b) > 0 {
		s := span{a[0].from, a[0].to}
		if s.from.before(b[0].from) {
			s.from = b[0].from
		}
		if b[0].to.before(s.to) {
			s.to = b[0].to
		}
		if s.from.before(s.to) {
			out = append(out, s)
		}
		if a[0].to.before(b[0].to) {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

// all is the whole list.
func (s *sorted[K]) all() []span { return []span{{place{}, s.end()}} }

// around is where the items are that have this key: between the first place and the second.
func (s *sorted[K]) around(key K) (at, behind place) {
	return s.seek(func(x item[K]) bool { return cmp.Less(x.key, key) }), s.seek(func(x item[K]) bool { return cmp.Compare(x.key, key) <= 0 })
}

func (c numbers) spans(k *clause) []span {
	nan := c.seek(func(x item[float64]) bool { return math.IsNaN(x.key) })
	at, behind := c.around(k.number)
	switch k.op {
	case "=":
		return []span{{at, behind}}
	case "!=":
		return []span{{place{}, at}, {behind, c.end()}}
	case "<":
		return []span{{nan, at}}
	case "<=":
		return []span{{nan, behind}}
	case ">":
		return []span{{behind, c.end()}}
	case ">=":
		return []span{{at, c.end()}}
	}
	return c.all()
}

func (c texts) spans(k *clause) []span {
	switch k.op {
	case "=", "!=":
		at, behind := c.around(k.text)
		if k.op == "=" {
			return []span{{at, behind}}
		}
		return []span{{place{}, at}, {behind, c.end()}}
	case "LIKE":
		prefix := k.text
		if i := strings.IndexAny(prefix, "%_"); i >= 0 {
			prefix = prefix[:i]
		}
		return []span{{
			c.seek(func(x item[string]) bool { return x.key < prefix }),
			c.seek(func(x item[string]) bool { return x.key < prefix || strings.HasPrefix(x.key, prefix) }),
		}}
	}
	return c.all()
}

func (c values[K]) count(spans []span) int {
	n := 0
	for _, s := range spans {
		n += c.sorted.count(s.from, s.to)
	}
	return n
}

func (c values[K]) in(spans []span) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		for _, s := range spans {
			for it := range c.between(s.from, s.to) {
				if !yield(it.n) {
					return
				}
			}
		}
	}
}

// inOrder is spans in the order in which they are walked: NaN, which is less than every number
// there, comes last.
func (c values[K]) inOrder(desc bool, spans []span) []span {
	first := c.seek(func(x item[K]) bool { return x.key != x.key }) //nolint:gocritic // is it NaN
	numbers := overlap(spans, []span{{first, c.end()}})
	if desc {
		slices.Reverse(numbers)
	}
	return append(numbers, overlap(spans, []span{{place{}, first}})...)
}

func (c values[K]) ordered(desc bool, spans []span) iter.Seq[*node] {
	walk := c.between
	if desc {
		walk = c.backward
	}
	return func(yield func(*node) bool) {
		for _, s := range c.inOrder(desc, spans) {
			for it := range walk(s.from, s.to) {
				if !yield(it.n) {
					return
				}
			}
		}
	}
}

func (c values[K]) groups(desc bool, spans []span) iter.Seq2[span, rank] {
	return func(yield func(span, rank) bool) {
		for _, s := range c.inOrder(desc, spans) {
			for s.from.before(s.to) {
				at := s.from
				if desc {
					at = c.before(s.to)
				}
				key := c.blocks[at.block][at.at].key
				first, behind := c.around(key)
				if !yield(span{first, behind}, c.rank(key)) {
					return
				}
				if desc {
					s.to = first
				} else {
					s.from = behind
				}
			}
		}
	}
}
