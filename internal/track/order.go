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

// parseOrder reads an order_by clause.
func (g *grammar) parseOrder(text string) (order, error) {
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

// parseOrders reads a list of them, of which none may come twice.
func (g *grammar) parseOrders(texts []string) ([]order, error) {
	var out []order
	for _, text := range texts {
		o, err := g.parseOrder(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(x order) bool { return x.of == o.of && x.key == o.key }) {
			return nil, invalid("`order_by` contains duplicate fields: %s", pythonList(texts))
		}
		out = append(out, o)
	}
	return out, nil
}

func pythonList(texts []string) string {
	return "['" + strings.Join(texts, "', '") + "']"
}

// A rank is a value that is sorted by. What has none comes last in both directions, and NaN just before.
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
	if len(orders) == 0 || len(things) < 2 {
		return things
	}
	n := len(orders)
	type ranked struct {
		at    int
		thing T
	}
	ranks := make([]rank, 0, n*len(things))
	list := make([]ranked, len(things))
	for i, t := range things {
		list[i] = ranked{i, t}
		for _, o := range orders {
			ranks = append(ranks, rankOf(t, o))
		}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		for k, o := range orders {
			if c := compareRanks(ranks[a.at*n+k], ranks[b.at*n+k], o.desc); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.at, b.at)
	})
	out := make([]T, len(list))
	for i := range list {
		out[i] = list[i].thing
	}
	return out
}
