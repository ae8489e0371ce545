package track

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// An order is one of the things that answers are sorted by.
type order struct {
	of   subject
	key  string
	desc bool
}

// maxOrder bounds an order_by clause, in bytes: the longest key fits.
const maxOrder = 2 << 10

func checkOrder(text string) error {
	if len(text) > maxOrder {
		return invalid("An `order_by` clause is longer than %d bytes", maxOrder)
	}
	return nil
}

// parseOrder reads an order_by clause.
func (g *grammar) parseOrder(text string) (order, error) {
	if err := checkOrder(text); err != nil {
		return order{}, err
	}
	t := tokens(text)
	broken := invalid("Invalid order_by clause '%s'. Could not be parsed.", text)
	if len(t) == 0 || len(t) > 2 || t[0].kind != tokenName {
		return order{}, broken
	}
	var o order
	if len(t) == 2 {
		switch {
		case t[1].is("desc"):
			o.desc = true
		case t[1].is("asc"):
		case t[1].kind == tokenName:
			return o, invalid("Invalid ordering key in order_by clause '%s'.", text)
		default:
			return o, broken
		}
	}
	if bare, _ := unquote(t[0].text, "`\""); g.orderWords != "" && !slices.Contains(g.orders, bare) {
		return o, invalid(g.orderWords, bare, setOf(g.orders))
	}
	var err error
	o.of, o.key, err = g.identify(t[0].text, g.orders)
	if err == nil && o.of == datasetOf {
		err = invalid("Invalid order_by entity: dataset")
	}
	return o, err
}

// maxOrders bounds what one search is sorted by.
const maxOrders = 20

// parseOrders reads a list of them, of which none may come twice.
func (g *grammar) parseOrders(texts []string) ([]order, error) {
	if len(texts) > maxOrders {
		return nil, invalid("`order_by` has more than %d fields", maxOrders)
	}
	var out []order
	seen := map[field]bool{}
	for _, text := range texts {
		o, err := g.parseOrder(text)
		if err != nil {
			return nil, err
		}
		if seen[o.field()] {
			return nil, invalid("`order_by` contains duplicate fields: %s", pythonList(texts))
		}
		seen[o.field()] = true
		out = append(out, o)
	}
	return out, nil
}

func pythonList(texts []string) string {
	return "['" + strings.Join(texts, "', '") + "']"
}

// A rank is a value that is sorted by. What has none comes last in both directions, and NaN just
// before.
type rank struct {
	class  int8 // 0 a value, 1 NaN, 2 nothing
	number float64
	text   string
}

func numberRank(v float64, has bool) rank {
	switch {
	case !has:
		return rank{class: 2}
	case math.IsNaN(v):
		return rank{class: 1}
	}
	return rank{number: v}
}

func textRank(v string, has bool) rank {
	if !has {
		return rank{class: 2}
	}
	return rank{text: v}
}

func compareRanks(a, b rank, desc bool) int {
	if a.class != b.class {
		return cmp.Compare(a.class, b.class)
	}
	c := cmp.Compare(a.number, b.number)
	if c == 0 {
		c = strings.Compare(a.text, b.text)
	}
	if desc {
		return -c
	}
	return c
}

// sortBy sorts things that are in their default order already by the ranks they have.
func sortBy[T any](things []T, orders []order, rankOf func(T, order) rank) []T {
	return firstBy(things, orders, 0, rankOf)
}

// firstBy is the first most things in an order, 0 for all of them.
func firstBy[T any](things []T, orders []order, most int, rankOf func(T, order) rank) []T {
	if len(orders) == 0 || len(things) < 2 {
		return things
	}
	n := len(orders)
	ranks := make([]rank, 0, n*len(things))
	list := make([]int, len(things)) // places in things
	for i, t := range things {
		list[i] = i
		for _, o := range orders {
			ranks = append(ranks, rankOf(t, o))
		}
	}
	before := func(a, b int) int {
		for k, o := range orders {
			if c := compareRanks(ranks[a*n+k], ranks[b*n+k], o.desc); c != 0 {
				return c
			}
		}
		return cmp.Compare(a, b)
	}
	if most > 0 && most < len(list)/4 {
		list = smallest(list, most, before)
	}
	slices.SortFunc(list, before)
	out := make([]T, len(list))
	for i, at := range list {
		out[i] = things[at]
	}
	return out
}

// smallest leaves the first most of a list, in no order: a heap of them has the last of them on
// top.
func smallest(list []int, most int, compare func(a, b int) int) []int {
	heap := list[:most]
	down := func(i int) {
		for {
			c := 2*i + 1
			if c >= most {
				return
			}
			if c+1 < most && compare(heap[c], heap[c+1]) < 0 {
				c++
			}
			if compare(heap[i], heap[c]) >= 0 {
				return
			}
			heap[i], heap[c] = heap[c], heap[i]
			i = c
		}
	}
	for i := most/2 - 1; i >= 0; i-- {
		down(i)
	}
	for _, x := range list[most:] {
		if compare(x, heap[0]) < 0 {
			heap[0] = x
			down(0)
		}
	}
	return heap
}
