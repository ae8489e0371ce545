package arm

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// listFunctions are those of arrays and objects, some of them of strings too.
func listFunctions() map[string]function {
	return map[string]function{
		"concat":   {1, -1, concat, nil},
		"empty":    {1, 1, func(_ *Template, a []any) (any, error) { return isEmpty(a[0]), nil }, nil},
		"length":   {1, 1, length, nil},
		"contains": {2, 2, contains, nil},
		"join":     {2, 2, join, nil},
		"first":    {1, 1, func(_ *Template, a []any) (any, error) { return end(a[0], false) }, nil},
		"last":     {1, 1, func(_ *Template, a []any) (any, error) { return end(a[0], true) }, nil},
		"take":     {2, 2, func(_ *Template, a []any) (any, error) { return part(a, func(n, all int) (int, int) { return 0, n }) }, nil},
		"skip":     {2, 2, func(_ *Template, a []any) (any, error) { return part(a, func(n, all int) (int, int) { return n, all }) }, nil},
		"array": {1, 1, func(_ *Template, a []any) (any, error) {
			if list, ok := a[0].([]any); ok {
				return list, nil
			}
			return []any{a[0]}, nil
		}, nil},
		"createarray":  {0, -1, func(_ *Template, a []any) (any, error) { return slices.Clone(a), nil }, nil},
		"createobject": {0, -1, createObject, nil},
		"union":        {2, -1, union, nil},
		"range":        {2, 2, ranges, nil},
		"items":        {1, 1, items, nil},
		"tryget":       {2, -1, tryGet, nil},
	}
}

func concat(_ *Template, a []any) (any, error) {
	if _, ok := a[0].([]any); ok {
		var out []any
		for _, v := range a {
			list, ok := v.([]any)
			if !ok {
				return nil, berth.Errorf(berth.Invalid, "concat: takes strings or arrays, not both")
			}
			out = append(out, list...)
		}
		return out, nil
	}
	n := 0
	var b strings.Builder
	for _, v := range a {
		switch v.(type) {
		case []any, map[string]any:
			return nil, berth.Errorf(berth.Invalid, "concat: takes strings or arrays, not %s", kindOf(v))
		}
		s, err := asText(v)
		if err != nil {
			return nil, err
		}
		if n += len(s); n > maxValue {
			return nil, berth.Errorf(berth.Limit, "concat: its result is larger than %d KiB", maxValue>>10)
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func length(_ *Template, a []any) (any, error) {
	switch v := a[0].(type) {
	case string:
		return int64(len([]rune(v))), nil
	case []any:
		return int64(len(v)), nil
	case map[string]any:
		return int64(len(v)), nil
	}
	return nil, berth.Errorf(berth.Invalid, "length: takes a string, an array or an object, not %s", kindOf(a[0]))
}

func contains(_ *Template, a []any) (any, error) {
	switch v := a[0].(type) {
	case string:
		s, err := str(a[1])
		return strings.Contains(v, s), err
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return equal(e, a[1]) }), nil
	case map[string]any:
		s, err := str(a[1])
		return lookUp(v, s) != "", err
	}
	return nil, berth.Errorf(berth.Invalid, "contains: takes a string, an array or an object, not %s", kindOf(a[0]))
}

func join(_ *Template, a []any) (any, error) {
	list, ok := a[0].([]any)
	by, err := str(a[1])
	if !ok || err != nil {
		return nil, berth.Errorf(berth.Invalid, "join: takes an array and a delimiter")
	}
	words, n := make([]string, len(list)), 0
	for i, v := range list {
		if words[i], err = asText(v); err != nil {
			return nil, err
		}
		if n += len(words[i]) + len(by); n > maxValue {
			return nil, berth.Errorf(berth.Limit, "join: its result is larger than %d KiB", maxValue>>10)
		}
	}
	return strings.Join(words, by), nil
}

// end is the first or the last of a string or an array; an empty array has none.
func end(v any, last bool) (any, error) {
	switch v := v.(type) {
	case string:
		r := []rune(v)
		if len(r) == 0 {
			return "", nil
		}
		if last {
			return string(r[len(r)-1:]), nil
		}
		return string(r[:1]), nil
	case []any:
		if len(v) == 0 {
			return nil, nil
		}
		if last {
			return v[len(v)-1], nil
		}
		return v[0], nil
	}
	return nil, berth.Errorf(berth.Invalid, "takes a string or an array, not %s", kindOf(v))
}

// part is a part of a string or an array.
func part(a []any, bounds func(n, all int) (from, to int)) (any, error) {
	n, err := integer(a[1])
	if err != nil {
		return nil, err
	}
	cut := func(all int) (int, int) { return bounds(int(min(max(0, n), int64(all))), all) }
	switch v := a[0].(type) {
	case string:
		r := []rune(v)
		from, to := cut(len(r))
		return string(r[from:to]), nil
	case []any:
		from, to := cut(len(v))
		return v[from:to:to], nil
	}
	return nil, berth.Errorf(berth.Invalid, "takes a string or an array, not %s", kindOf(a[0]))
}

func createObject(_ *Template, a []any) (any, error) {
	if len(a)%2 != 0 {
		return nil, berth.Errorf(berth.Invalid, "createObject: takes names and values in turn")
	}
	out := map[string]any{}
	for i := 0; i < len(a); i += 2 {
		name, err := str(a[i])
		if err != nil {
			return nil, err
		}
		out[name] = a[i+1]
	}
	return out, nil
}

// maxUnion is how many elements the arrays of a union have together.
const maxUnion = 10000

func union(_ *Template, a []any) (any, error) {
	if _, ok := a[0].([]any); ok {
		return unionOfArrays(a)
	}
	out := map[string]any{}
	for _, v := range a {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, berth.Errorf(berth.Invalid, "union: takes arrays or objects, not %s", kindOf(v))
		}
		out = merged(out, m, 0)
	}
	return out, nil
}

// unionOfArrays are the elements of arrays, each once, in order.
func unionOfArrays(a []any) (any, error) {
	out, seen, n := []any{}, map[string]bool{}, 0
	for _, v := range a {
		list, ok := v.([]any)
		if !ok {
			return nil, berth.Errorf(berth.Invalid, "union: takes arrays or objects, not both")
		}
		if n += len(list); n > maxUnion {
			return nil, berth.Errorf(berth.Limit, "union: its arrays have more than %d elements together", maxUnion)
		}
		for _, e := range list {
			key, err := identity(e)
			if err != nil {
				return nil, err
			}
			if !seen[key] {
				seen[key] = true
				out = append(out, e)
			}
		}
	}
	return out, nil
}

// identity is the same for values that are equal, and for no others.
func identity(v any) (string, error) {
	b, err := json.Marshal(canonical(v))
	return string(b), err
}

// canonical is a value with each integer written one way.
func canonical(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = canonical(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = canonical(e)
		}
		return out
	}
	if n, ok := number(v); ok {
		return n
	}
	return v
}

// merged is b over a, level by level.
func merged(a, b map[string]any, depth int) map[string]any {
	out := maps.Clone(a)
	for k, v := range b {
		x, ok1 := out[k].(map[string]any)
		y, ok2 := v.(map[string]any)
		if ok1 && ok2 && depth < maxNesting {
			v = merged(x, y, depth+1)
		}
		out[k] = v
	}
	return out
}

func ranges(_ *Template, a []any) (any, error) {
	from, err := integer(a[0])
	if err != nil {
		return nil, err
	}
	n, err := integer(a[1])
	if err != nil {
		return nil, err
	}
	if n < 0 || n > 10000 || from > math.MaxInt32 {
		return nil, berth.Errorf(berth.Limit, "range: has at most 10000 numbers")
	}
	out := make([]any, n)
	for i := range out {
		out[i] = from + int64(i)
	}
	return out, nil
}

func items(_ *Template, a []any) (any, error) {
	m, ok := a[0].(map[string]any)
	if !ok {
		return nil, berth.Errorf(berth.Invalid, "items: takes an object, not %s", kindOf(a[0]))
	}
	out := []any{}
	for _, k := range keys(m) {
		out = append(out, map[string]any{"key": k, "value": m[k]})
	}
	return out, nil
}

// tryGet is what is below a value, null when there is nothing.
func tryGet(_ *Template, a []any) (any, error) {
	v := a[0]
	for _, key := range a[1:] {
		switch at := v.(type) {
		case map[string]any:
			name, _ := key.(string)
			v = at[lookUp(at, name)]
		case []any:
			i, ok := number(key)
			if !ok || i < 0 || i >= int64(len(at)) {
				return nil, nil
			}
			v = at[i]
		default:
			return nil, nil
		}
	}
	return v, nil
}

// numberFunctions are those of integers.
func numberFunctions() map[string]function {
	two := func(f func(x, y int64) (any, error)) function {
		return function{2, 2, func(_ *Template, a []any) (any, error) {
			x, err := integer(a[0])
			if err != nil {
				return nil, err
			}
			y, err := integer(a[1])
			if err != nil {
				return nil, err
			}
			return f(x, y)
		}, nil}
	}
	compare := func(f func(c int) bool) function {
		return function{2, 2, func(_ *Template, a []any) (any, error) {
			if x, ok := a[0].(string); ok {
				y, err := str(a[1])
				return f(strings.Compare(x, y)), err
			}
			x, err := integer(a[0])
			if err != nil {
				return nil, err
			}
			y, err := integer(a[1])
			return f(cmp.Compare(x, y)), err
		}, nil}
	}
	divided := func(f func(x, y int64) int64) function {
		return two(func(x, y int64) (any, error) {
			if y == 0 || x == math.MinInt64 && y == -1 {
				return nil, berth.Errorf(berth.Invalid, "%d cannot be divided by %d", x, y)
			}
			return f(x, y), nil
		})
	}
	return map[string]function{
		"add": two(func(x, y int64) (any, error) { return x + y, nil }), "sub": two(func(x, y int64) (any, error) { return x - y, nil }),
		"mul": two(func(x, y int64) (any, error) { return x * y, nil }),
		"div": divided(func(x, y int64) int64 { return x / y }), "mod": divided(func(x, y int64) int64 { return x % y }),
		"less": compare(func(c int) bool { return c < 0 }), "lessorequals": compare(func(c int) bool { return c <= 0 }),
		"greater": compare(func(c int) bool { return c > 0 }), "greaterorequals": compare(func(c int) bool { return c >= 0 }),
		"min": {1, -1, func(_ *Template, a []any) (any, error) { return extreme(a, false) }, nil},
		"max": {1, -1, func(_ *Template, a []any) (any, error) { return extreme(a, true) }, nil},
		"int": {1, 1, func(_ *Template, a []any) (any, error) {
			if s, ok := a[0].(string); ok {
				n, err := strconv.ParseInt(s, 10, 64)
				if err != nil {
					return nil, berth.Errorf(berth.Invalid, "int: its argument is not an integer")
				}
				return n, nil
			}
			return integer(a[0])
		}, nil},
		"bool": {1, 1, func(_ *Template, a []any) (any, error) {
			switch v := a[0].(type) {
			case bool:
				return v, nil
			case string:
				b, err := strconv.ParseBool(strings.ToLower(v))
				if err != nil {
					return nil, berth.Errorf(berth.Invalid, "bool: its argument is neither true nor false")
				}
				return b, nil
			}
			n, err := integer(a[0])
			return n != 0, err
		}, nil},
	}
}

func extreme(a []any, largest bool) (any, error) {
	if list, ok := a[0].([]any); ok && len(a) == 1 {
		a = list
	}
	if len(a) == 0 {
		return nil, berth.Errorf(berth.Invalid, "takes at least one integer")
	}
	out, err := integer(a[0])
	for _, v := range a {
		n, nerr := integer(v)
		if nerr != nil {
			return nil, nerr
		}
		if largest && n > out || !largest && n < out {
			out = n
		}
	}
	return out, err
}
