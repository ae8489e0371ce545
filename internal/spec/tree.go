package spec

import (
	"sort"
	"strings"
	"unicode"
)

// tree is a JSON object under construction.
type tree map[string]any

// put stores val at a dotted path, making the objects on the way. A nil val is not stored.
func (t tree) put(path string, val any) {
	if val == nil {
		return
	}
	for {
		head, rest, more := strings.Cut(path, ".")
		if !more {
			t[path] = val
			return
		}
		sub, ok := asTree(t[head])
		if !ok {
			sub = tree{}
			t[head] = sub
		}
		t, path = sub, rest
	}
}

// at is the value at a dotted path, nil when it is not there.
func (t tree) at(path string) any {
	for {
		head, rest, more := strings.Cut(path, ".")
		val := t[head]
		if !more {
			return val
		}
		sub, ok := asTree(val)
		if !ok {
			return nil
		}
		t, path = sub, rest
	}
}

// text is the string at a dotted path, "" when there is none.
func (t tree) text(path string) string {
	s, _ := t.at(path).(string)
	return s
}

// sub is the object at a dotted path, made when it is not there.
func (t tree) sub(path string) tree {
	if s, ok := asTree(t.at(path)); ok {
		return s
	}
	s := tree{}
	t.put(path, s)
	return s
}

// asTree takes any kind of JSON object.
func asTree(v any) (tree, bool) {
	switch m := v.(type) {
	case tree:
		return m, true
	case map[string]any:
		return tree(m), true
	case *dict:
		if m == nil {
			return nil, true
		}
		return m.tree, true
	}
	return nil, false
}

// camel turns snake_case into camelCase.
func camel(s string) string {
	var b strings.Builder
	up := false
	for i, r := range s {
		if r == '_' && i > 0 {
			up = true
			continue
		}
		if up {
			r = unicode.ToUpper(r)
		}
		up = false
		b.WriteRune(r)
	}
	return b.String()
}

// pascal turns snake_case into PascalCase.
func pascal(s string) string {
	c := camel(s)
	if c == "" {
		return c
	}
	return strings.ToUpper(c[:1]) + c[1:]
}

// snake turns camelCase or PascalCase into snake_case; runs of capitals are one word's tail, as in
// AMLToken: aml_token.
func snake(s string) string {
	rs := []rune(s)
	var b strings.Builder
	for i, r := range rs {
		if unicode.IsUpper(r) && i > 0 {
			prev, next := rs[i-1], rune(0)
			if i+1 < len(rs) {
				next = rs[i+1]
			}
			if unicode.IsLower(prev) || unicode.IsDigit(prev) || unicode.IsUpper(prev) && unicode.IsLower(next) {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// pythonSnake is the client's own snake_case, which differs from snake at runs of capitals: XGBoost
// is xg_boost. It parts first before a capital that small letters follow, then between a small
// letter or digit and a capital.
func pythonSnake(s string) string {
	lower := func(c byte) bool { return c >= 'a' && c <= 'z' }
	upper := func(c byte) bool { return c >= 'A' && c <= 'Z' }
	var b strings.Builder
	last := -1 // end of the last word of the first pass, which takes the letter before it along
	for i := 0; i < len(s); i++ {
		if upper(s[i]) && i > 0 {
			word := i+1 < len(s) && lower(s[i+1]) && i-1 > last
			if word || lower(s[i-1]) || s[i-1] >= '0' && s[i-1] <= '9' {
				b.WriteByte('_')
			}
			if word {
				for last = i + 1; last+1 < len(s) && lower(s[last+1]); last++ {
				}
			}
		}
		b.WriteByte(s[i])
	}
	return strings.ToLower(b.String())
}

// clone copies objects and lists, so that a value of a table is never changed through a document.
func clone(v any) any {
	switch x := v.(type) {
	case tree:
		out := make(tree, len(x))
		for k, val := range x {
			out[k] = clone(val)
		}
		return out
	case *dict:
		return x.like(clone(x.tree).(tree))
	case []any:
		out := make([]any, len(x))
		for i, val := range x {
			out[i] = clone(val)
		}
		return out
	}
	return v
}

func sortedKeys(t tree) []string {
	keys := make([]string, 0, len(t))
	for k := range t {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
