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

// around is where the items are that have this key, of which none may be NaN: between the first
// place and the second.
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

// ordered walks spans; NaN, which is less than every number there, comes last.
func (c values[K]) ordered(desc bool, spans []span) iter.Seq2[*node, bool] {
	first := c.seek(func(x item[K]) bool { return x.key != x.key }) //nolint:gocritic // is it NaN
	parts := [][]span{overlap(spans, []span{{first, c.end()}}), overlap(spans, []span{{place{}, first}})}
	walk := c.between
	if desc {
		walk = c.backward
		slices.Reverse(parts[0])
	}
	return func(yield func(*node, bool) bool) {
		var last K
		begun := false
		for _, s := range slices.Concat(parts...) {
			for it := range walk(s.from, s.to) {
				if !yield(it.n, !begun || cmp.Compare(it.key, last) != 0) {
					return
				}
				last, begun = it.key, true
			}
		}
	}
}
