package jmes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// function is one of the functions of the specification.
type function struct {
	takes []string // what each argument may be: words of typeOf, with | between; any
	more  bool     // the last may be repeated
	run   func(args []any) (any, error)
}

func (f function) count() string {
	n := strconv.Itoa(len(f.takes)) + " argument"
	if len(f.takes) != 1 {
		n += "s"
	}
	if f.more {
		return n + " or more"
	}
	return n
}

func takes(words ...string) []string { return words }

// functions is all of them. Adding one is adding a row.
func functions() map[string]function {
	return map[string]function{
		"abs":         {takes("number"), false, abs},
		"avg":         {takes("numbers"), false, avg},
		"ceil":        {takes("number"), false, func(a []any) (any, error) { return whole(math.Ceil(value(a[0]))), nil }},
		"contains":    {takes("array|string", "any"), false, contains},
		"ends_with":   {takes("string", "string"), false, func(a []any) (any, error) { return strings.HasSuffix(a[0].(string), a[1].(string)), nil }},
		"floor":       {takes("number"), false, func(a []any) (any, error) { return whole(math.Floor(value(a[0]))), nil }},
		"join":        {takes("string", "strings"), false, join},
		"keys":        {takes("object"), false, keysOf},
		"length":      {takes("string|array|object"), false, length},
		"map":         {takes("expression", "array"), false, mapEach},
		"max":         {takes("numbers|strings"), false, func(a []any) (any, error) { return extreme(a[0].([]any), 1) }},
		"max_by":      {takes("array", "expression"), false, func(a []any) (any, error) { return extremeBy(a, 1) }},
		"merge":       {takes("object"), true, merge},
		"min":         {takes("numbers|strings"), false, func(a []any) (any, error) { return extreme(a[0].([]any), -1) }},
		"min_by":      {takes("array", "expression"), false, func(a []any) (any, error) { return extremeBy(a, -1) }},
		"not_null":    {takes("any"), true, notNull},
		"reverse":     {takes("array|string"), false, reverse},
		"sort":        {takes("numbers|strings"), false, func(a []any) (any, error) { return sorted(a[0].([]any)), nil }},
		"sort_by":     {takes("array", "expression"), false, sortBy},
		"starts_with": {takes("string", "string"), false, func(a []any) (any, error) { return strings.HasPrefix(a[0].(string), a[1].(string)), nil }},
		"sum":         {takes("numbers"), false, sum},
		"to_array":    {takes("any"), false, toArray},
		"to_number":   {takes("any"), false, toNumber},
		"to_string":   {takes("any"), false, toString},
		"type":        {takes("any"), false, func(a []any) (any, error) { return typeOf(a[0]), nil }},
		"values":      {takes("object"), false, func(a []any) (any, error) { return values{}.eval(a[0]) }},
	}
}

// invocation is a call of a function.
type invocation struct {
	name string
	f    function
	args []node
}

func (n invocation) eval(v any) (any, error) {
	args := make([]any, len(n.args))
	for i, a := range n.args {
		got, err := a.eval(v)
		if err != nil {
			return nil, err
		}
		want := n.f.takes[min(i, len(n.f.takes)-1)]
		if !fits(got, want) {
			return nil, fmt.Errorf("%s: argument %d must be %s, not %s", n.name, i+1, strings.ReplaceAll(want, "|", " or "), describe(got))
		}
		args[i] = got
	}
	out, err := n.f.run(args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.name, err)
	}
	return out, nil
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any, *Object:
		return "object"
	case reference:
		return "expression"
	}
	return "number"
}

func describe(v any) string {
	if list, ok := v.([]any); ok && len(list) > 0 {
		return "array of " + typeOf(list[0])
	}
	return typeOf(v)
}

// fits reports whether v is one of the wanted types; numbers and strings are lists of nothing else.
func fits(v any, want string) bool {
	for _, w := range strings.Split(want, "|") {
		switch w {
		case "any":
			if _, ok := v.(reference); !ok {
				return true
			}
		case "numbers", "strings":
			list, ok := v.([]any)
			if ok && !slices.ContainsFunc(list, func(e any) bool { return typeOf(e)+"s" != w }) {
				return true
			}
		case typeOf(v):
			return true
		}
	}
	return false
}

func value(v any) float64 { f, _ := num(v); return f }

// whole is a number without digits after the point.
func whole(f float64) any { return json.Number(strconv.FormatFloat(f, 'f', -1, 64)) }

// fraction is a number that may have some; one that has none says so, as Python writes it.
func fraction(f float64) any {
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		text = strconv.FormatFloat(f, 'g', -1, 64)
	} else if !strings.Contains(text, ".") {
		text += ".0"
	}
	return json.Number(text)
}

func isWhole(v any) bool {
	n, ok := v.(json.Number)
	return ok && !strings.ContainsAny(n.String(), ".eE")
}

func finite(f float64) error {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return fmt.Errorf("the result is too large")
	}
	return nil
}

func abs(a []any) (any, error) {
	if n, ok := a[0].(json.Number); ok {
		return json.Number(strings.TrimPrefix(n.String(), "-")), nil
	}
	return math.Abs(value(a[0])), nil
}

func total(list []any) (f float64, ints bool) {
	ints = true
	for _, e := range list {
		f += value(e)
		ints = ints && isWhole(e)
	}
	return f, ints
}

func sum(a []any) (any, error) {
	f, ints := total(a[0].([]any))
	if ints {
		return whole(f), finite(f)
	}
	return fraction(f), finite(f)
}

func avg(a []any) (any, error) {
	list := a[0].([]any)
	if len(list) == 0 {
		return nil, nil
	}
	f, _ := total(list)
	return fraction(f / float64(len(list))), finite(f)
}

func contains(a []any) (any, error) {
	if text, ok := a[0].(string); ok {
		part, ok := a[1].(string)
		return ok && strings.Contains(text, part), nil
	}
	return slices.ContainsFunc(a[0].([]any), func(e any) bool { return equal(e, a[1]) }), nil
}

func join(a []any) (any, error) {
	if err := bounded(a[1], maxText); err != nil || len(a[1].([]any))*len(a[0].(string)) > maxText {
		return nil, errSize
	}
	var parts []string
	for _, e := range a[1].([]any) {
		parts = append(parts, e.(string))
	}
	return strings.Join(parts, a[0].(string)), nil
}

func keysOf(a []any) (any, error) {
	keys, _, _ := members(a[0])
	out := make([]any, len(keys))
	for i, k := range keys {
		out[i] = k
	}
	return out, nil
}

func length(a []any) (any, error) {
	switch x := a[0].(type) {
	case string:
		return whole(float64(len([]rune(x)))), nil
	case []any:
		return whole(float64(len(x))), nil
	}
	keys, _, _ := members(a[0])
	return whole(float64(len(keys))), nil
}

func mapEach(a []any) (any, error) {
	list := a[1].([]any)
	out := make([]any, len(list))
	for i, e := range list {
		got, err := a[0].(reference).of.eval(e)
		if err != nil {
			return nil, err
		}
		out[i] = got
	}
	return out, nil
}

func merge(a []any) (any, error) {
	out := &Object{Values: map[string]any{}}
	for _, o := range a {
		keys, get, _ := members(o)
		for _, k := range keys {
			out.set(k, get[k])
		}
	}
	return out, nil
}

func notNull(a []any) (any, error) {
	for _, v := range a {
		if v != nil {
			return v, nil
		}
	}
	return nil, nil
}

func reverse(a []any) (any, error) {
	if text, ok := a[0].(string); ok {
		r := []rune(text)
		slices.Reverse(r)
		return string(r), nil
	}
	out := slices.Clone(a[0].([]any))
	slices.Reverse(out)
	return out, nil
}

// order compares two numbers or two texts.
func order(a, b any) int {
	if x, ok := a.(string); ok {
		y, _ := b.(string)
		return strings.Compare(x, y)
	}
	return cmp.Compare(value(a), value(b))
}

func sorted(list []any) any {
	out := slices.Clone(list)
	if out == nil {
		out = []any{}
	}
	slices.SortStableFunc(out, order)
	return out
}

// extreme is the greatest item for sign 1, the least for -1.
func extreme(list []any, sign int) (any, error) {
	if len(list) == 0 {
		return nil, nil
	}
	best := list[0]
	for _, e := range list[1:] {
		if order(e, best)*sign > 0 {
			best = e
		}
	}
	return best, nil
}

// keyed are the items of a list with what an expression says of each: numbers only, or texts only.
func keyed(a []any) (list, by []any, err error) {
	list = a[0].([]any)
	for _, e := range list {
		k, err := a[1].(reference).of.eval(e)
		if err != nil {
			return nil, nil, err
		}
		if t := typeOf(k); t != "number" && t != "string" || len(by) > 0 && t != typeOf(by[0]) {
			return nil, nil, fmt.Errorf("the expression must return only numbers or only strings, not %s", t)
		}
		by = append(by, k)
	}
	return list, by, nil
}

func extremeBy(a []any, sign int) (any, error) {
	list, by, err := keyed(a)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	best := 0
	for i := range list {
		if order(by[i], by[best])*sign > 0 {
			best = i
		}
	}
	return list[best], nil
}

func sortBy(a []any) (any, error) {
	list, by, err := keyed(a)
	if err != nil {
		return nil, err
	}
	at := make([]int, len(list))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int { return order(by[i], by[j]) })
	out := make([]any, len(list))
	for i, k := range at {
		out[i] = list[k]
	}
	return out, nil
}

func toArray(a []any) (any, error) {
	if list, ok := a[0].([]any); ok {
		return list, nil
	}
	return []any{a[0]}, nil
}

func toNumber(a []any) (any, error) {
	switch x := a[0].(type) {
	case string:
		v, err := decode(strings.TrimSpace(x))
		if _, ok := num(v); err != nil || !ok {
			return nil, nil //nolint:nilerr // text that is not a number is nothing
		}
		return v, nil
	default:
		if typeOf(x) == "number" {
			return x, nil
		}
	}
	return nil, nil
}

func toString(a []any) (any, error) {
	if text, ok := a[0].(string); ok {
		return text, nil
	}
	if err := bounded(a[0], maxText); err != nil {
		return nil, err
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(a[0])
	return strings.TrimSpace(b.String()), err
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
