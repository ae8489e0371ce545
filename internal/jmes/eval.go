package jmes

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
)

// node is a part of a query.
type node interface {
	eval(v any) (any, error)
}

type (
	identity struct{}
	constant struct{ value any }
	field    string
	item     struct { // of[at]
		of node
		at int
	}
	cut struct { // of[from:to:step]
		of    node
		parts [3]*int
	}
	chain      struct{ left, right node } // left.right, left | right
	either     struct{ left, right node }
	both       struct{ left, right node }
	negation   struct{ of node }
	reference  struct{ of node } // &of
	comparison struct {
		kind        kind
		left, right node
	}
	values     struct{}          // the values of an object, as a list
	flat       struct{ of node } // of[]
	projection struct{ of, each node }
	selection  struct{ of, condition, each node } // of[?condition]
	multilist  []node
	pair       struct {
		key string
		of  node
	}
	multihash []pair
)

func (identity) eval(v any) (any, error)  { return v, nil }
func (n constant) eval(any) (any, error)  { return n.value, nil }
func (n reference) eval(any) (any, error) { return n, nil }

func (n field) eval(v any) (any, error) {
	switch x := v.(type) {
	case map[string]any:
		return x[string(n)], nil
	case *Object:
		return x.Values[string(n)], nil
	}
	return nil, nil
}

func (n item) eval(v any) (any, error) {
	v, err := n.of.eval(v)
	list, ok := v.([]any)
	at := n.at
	if at < 0 {
		at += len(list)
	}
	if err != nil || !ok || at < 0 || at >= len(list) {
		return nil, err
	}
	return list[at], nil
}

func (n cut) eval(v any) (any, error) {
	v, err := n.of.eval(v)
	list, ok := v.([]any)
	if err != nil || !ok {
		return nil, err
	}
	step := 1
	if n.parts[2] != nil {
		step = *n.parts[2]
	}
	size := len(list)
	// The bounds of an open slice, and how far a bound may lie outside.
	from, to, low, high := 0, size, 0, size
	if step < 0 {
		from, to, low, high = size-1, -1, -1, size-1
	}
	bound := func(p *int, open int) int {
		if p == nil {
			return open
		}
		at := *p
		if at < 0 {
			at += size
		}
		return max(low, min(high, at))
	}
	from, to = bound(n.parts[0], from), bound(n.parts[1], to)
	out := []any{}
	for i := from; step > 0 && i < to || step < 0 && i > to; {
		out = append(out, list[i])
		if step > size || -step > size {
			break // one step is beyond the end
		}
		i += step
	}
	return out, nil
}

func (n chain) eval(v any) (any, error) {
	left, err := n.left.eval(v)
	if err != nil {
		return nil, err
	}
	return n.right.eval(left)
}

func (n either) eval(v any) (any, error) {
	left, err := n.left.eval(v)
	if err != nil || truth(left) {
		return left, err
	}
	return n.right.eval(v)
}

func (n both) eval(v any) (any, error) {
	left, err := n.left.eval(v)
	if err != nil || !truth(left) {
		return left, err
	}
	return n.right.eval(v)
}

func (n negation) eval(v any) (any, error) {
	of, err := n.of.eval(v)
	return !truth(of), err
}

// truth is false for nothing, and for what is empty.
func truth(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case string:
		return x != ""
	case []any:
		return len(x) > 0
	case map[string]any:
		return len(x) > 0
	case *Object:
		return len(x.Keys) > 0
	}
	return true
}

func (n comparison) eval(v any) (any, error) {
	left, err := n.left.eval(v)
	if err != nil {
		return nil, err
	}
	right, err := n.right.eval(v)
	if err != nil {
		return nil, err
	}
	switch n.kind {
	case eq:
		return equal(left, right), nil
	case ne:
		return !equal(left, right), nil
	}
	var order int
	if a, ok := left.(string); ok {
		b, too := right.(string)
		if !too {
			return nil, nil
		}
		order = strings.Compare(a, b) // as az has it; the specification gives text no order
	} else {
		a, ok := num(left)
		b, too := num(right)
		if !ok || !too {
			return nil, nil
		}
		order = cmp.Compare(a, b)
	}
	switch n.kind {
	case lt:
		return order < 0, nil
	case le:
		return order <= 0, nil
	case gt:
		return order > 0, nil
	}
	return order >= 0, nil
}

// num is the value of a number.
func num(v any) (float64, bool) {
	switch x := v.(type) {
	case json.Number:
		f, err := x.Float64()
		return f, err == nil
	case float64:
		return x, true
	case int:
		return float64(x), true
	}
	return 0, false
}

// equal compares by value: 1 is 1.0, and objects do not care for the order of their members.
func equal(a, b any) bool {
	if x, ok := num(a); ok {
		y, ok := num(b)
		return ok && x == y
	}
	if x, ok := a.([]any); ok {
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	if ka, x, ok := members(a); ok {
		_, y, ok := members(b)
		if !ok || len(x) != len(y) {
			return false
		}
		for _, k := range ka {
			other, there := y[k]
			if !there || !equal(x[k], other) {
				return false
			}
		}
		return true
	}
	return reflect.TypeOf(a) == reflect.TypeOf(b) && comparable(a) && a == b
}

func comparable(v any) bool {
	switch v.(type) {
	case nil, bool, string:
		return true
	}
	return false
}

func (values) eval(v any) (any, error) {
	keys, get, ok := members(v)
	if !ok {
		return nil, nil
	}
	out := make([]any, len(keys))
	for i, k := range keys {
		out[i] = get[k]
	}
	return out, nil
}

func (n flat) eval(v any) (any, error) {
	v, err := n.of.eval(v)
	list, ok := v.([]any)
	if err != nil || !ok {
		return nil, err
	}
	out := []any{}
	for _, e := range list {
		if inner, ok := e.([]any); ok {
			if len(out)+len(inner) > maxItems {
				return nil, errSize
			}
			out = append(out, inner...)
		} else {
			out = append(out, e)
		}
	}
	return out, nil
}

func (n projection) eval(v any) (any, error) {
	v, err := n.of.eval(v)
	list, ok := v.([]any)
	if err != nil || !ok {
		return nil, err
	}
	return each(list, n.each)
}

// each is what n gives for every item; nothing is left out.
func each(list []any, n node) (any, error) {
	out := []any{}
	for _, e := range list {
		got, err := n.eval(e)
		if err != nil {
			return nil, err
		}
		if got != nil {
			out = append(out, got)
		}
	}
	return out, nil
}

func (n selection) eval(v any) (any, error) {
	v, err := n.of.eval(v)
	list, ok := v.([]any)
	if err != nil || !ok {
		return nil, err
	}
	chosen := []any{}
	for _, e := range list {
		got, err := n.condition.eval(e)
		if err != nil {
			return nil, err
		}
		if truth(got) {
			chosen = append(chosen, e)
		}
	}
	return each(chosen, n.each)
}

func (n multilist) eval(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	out := make([]any, len(n))
	for i, e := range n {
		got, err := e.eval(v)
		if err != nil {
			return nil, err
		}
		out[i] = got
	}
	return out, nil
}

func (n multihash) eval(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	out := &Object{Values: map[string]any{}}
	for _, p := range n {
		got, err := p.of.eval(v)
		if err != nil {
			return nil, err
		}
		out.set(p.key, got)
	}
	return out, nil
}
