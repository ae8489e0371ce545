package spec

import (
	"sort"
	"strconv"
	"strings"
	"sync"
)

// listOf is a list whose items are all of one type.
func listOf(t typ) typ {
	return typ{name: "a list", solid: true, readFunc: func(s *scope, v *value) any {
		if v.shape != list {
			s.fail(v, "must be a list, not %s", v.shape)
			return nil
		}
		out := make([]any, 0, len(v.items))
		for i, it := range v.items {
			here := s.in("[" + strconv.Itoa(i) + "]")
			if it.shape == null && !t.null {
				here.fail(it, "must not be null")
				continue
			}
			if here.binds(t, it) {
				out = append(out, it.text)
				continue
			}
			out = append(out, t.take(here, it))
		}
		return out
	}, showFunc: func(j any) any {
		items, ok := j.([]any)
		if !ok || !t.shows() {
			return j
		}
		out := make([]any, len(items))
		for i, it := range items {
			out[i] = t.show(it)
		}
		return out
	}}
}

// mapOf is a mapping with keys of the user's choice and values of one type.
func mapOf(t typ) typ {
	return typ{name: "a mapping", solid: true, readFunc: func(s *scope, v *value) any {
		if v.shape != mapping {
			s.fail(v, "must be a mapping, not %s", v.shape)
			return nil
		}
		out := newDict(len(v.pairs))
		for _, p := range v.pairs {
			here := s.in(p.key)
			switch {
			case !p.text:
				here.fail(p.at, "the key must be a string, not %s; put it in quotes", p.at.shape)
			case p.val.shape == null && !t.null:
				here.fail(p.val, "must not be null")
			case here.binds(t, p.val):
				out.add(p.key, p.val.text)
			default:
				out.add(p.key, t.take(here, p.val))
			}
		}
		return out
	}, showFunc: func(j any) any {
		m, ok := asTree(j)
		if !ok || !t.shows() {
			return j
		}
		out := tree{}
		for k, v := range m {
			out[k] = t.show(v)
		}
		return out
	}}
}

// orNull lets a value of a map or list be null.
func orNull(t typ) typ {
	inner := t
	t.null, t.yaml = true, nil
	if t.choice != nil {
		t.name, t.showFunc, t.choice = t.label(), t.show, nil
	}
	t.readFunc = func(s *scope, v *value) any {
		if v.shape == null {
			return nil
		}
		return inner.take(s, v)
	}
	return t
}

// freeMap is a mapping that travels as it is.
var freeMap = typ{name: "a mapping", solid: true, readFunc: func(s *scope, v *value) any {
	if v.shape != mapping {
		s.fail(v, "must be a mapping, not %s", v.shape)
		return nil
	}
	return v.raw()
}}

// The maps every resource has. Jobs allow null values, computes do not, models take anything.
var (
	textMap = mapOf(text)
	jobMap  = mapOf(orNull(text))
)

// namedMap is a mapping of anything whose keys are text.
var namedMap = mapOf(anything)

// writtenMap takes any values and sends each as the text Python has for it: "True", "['a', 1]".
var writtenMap = typ{name: "a mapping", readFunc: func(s *scope, v *value) any {
	if v.shape != mapping {
		s.fail(v, "must be a mapping, not %s", v.shape)
		return nil
	}
	out := tree{}
	for _, p := range v.pairs {
		if p.val.shape != null {
			out[p.key] = p.val.python()
		}
	}
	return out
}}

// oneOf tries types in order and takes the first that fits. When none does, the errors of the one
// that came closest are reported: the one whose errors lie deepest in the value.
func oneOf(ts ...typ) typ {
	names := make([]string, 0, len(ts))
	for _, t := range ts {
		if len(names) == 0 || names[len(names)-1] != t.label() {
			names = append(names, t.label())
		}
	}
	what := strings.Join(names, " or ")
	return typ{name: what, readFunc: func(s *scope, v *value) any {
		var best Errors
		depth := -1
		for _, t := range ts {
			m := s.mark()
			got := t.take(s, v)
			if !s.failed(m) {
				return got
			}
			errs := s.back(m)
			// Errors about the value as a whole say only that this was not the form meant.
			if d := deepest(s.field, errs); d > depth {
				best, depth = errs, d
			}
		}
		if depth <= 0 && len(ts) > 1 {
			if v.scalar() {
				s.fail(v, "must be %s, not %s", what, describe(v))
				return nil
			}
			best = onlyFirst(best)
		}
		s.errs = append(s.errs, best...)
		return nil
	}, showFunc: func(j any) any {
		m, isObj := asTree(j)
		for _, t := range ts {
			if (t.table != nil) == isObj && t.shows() && (!isObj || t.table.matches(nil, m)) {
				return t.show(j)
			}
		}
		return j
	}}
}

func onlyFirst(e Errors) Errors {
	if len(e) > 1 {
		return e[:1]
	}
	return e
}

// deepest is 0 when some error is about the value itself, else more the fewer of its fields are
// wrong.
func deepest(field string, errs Errors) int {
	best := 1000
	for _, e := range errs {
		if e.Field == field {
			return 0
		}
		best--
	}
	return max(best, 1)
}

// byKey picks a type by the word a key of the mapping holds, compared in lower case. "" is the type
// of a mapping without the key.
func byKey(key string, made func() map[string]typ) typ {
	return typ{name: "a mapping", solid: true, forms: &forms{key: key, made: made}}
}

// byExactKey is byKey for words that must be spelled as they are.
func byExactKey(key string, made func() map[string]typ) typ {
	return typ{name: "a mapping", solid: true, forms: &forms{key: key, made: made, exact: true}}
}

// forms are the types of a mapping that a key of it decides between.
type forms struct {
	key   string
	made  func() map[string]typ
	exact bool

	once  sync.Once
	types map[string]typ
	words []string
}

func (f *forms) ready() (types map[string]typ, words []string) {
	f.once.Do(func() {
		f.types = f.made()
		for w := range f.types {
			if w != "" {
				f.words = append(f.words, w)
			}
		}
		sort.Strings(f.words)
	})
	return f.types, f.words
}

func (f *forms) read(s *scope, v *value) any {
	if v.shape != mapping {
		s.fail(v, "must be a mapping, not %s", v.shape)
		return nil
	}
	types, words := f.ready()
	word := v.get(f.key)
	if word == nil {
		if t, ok := types[""]; ok {
			return t.take(s, v)
		}
		s.in(f.key).fail(v, "is required: one of %s", strings.Join(words, ", "))
		return nil
	}
	name := word.text
	t, ok := types[name]
	for _, fold := range []func(string) string{snakeWords, strings.ToLower} {
		if !ok && !f.exact {
			name = fold(word.text)
			t, ok = types[name]
		}
	}
	if !ok || word.shape != str || word.text == "" {
		s.in(f.key).failWith(word, nearest(word.text, words), "%s is not one of %s", describe(word), strings.Join(words, ", "))
		return nil
	}
	got := t.take(s, v)
	if out, ok := asTree(got); ok && s.yaml {
		out[f.key] = name
	}
	return got
}

func (f *forms) show(j any) any {
	m, ok := asTree(j)
	if !ok {
		return j
	}
	types, words := f.ready()
	for _, w := range words {
		if t := types[w]; t.table != nil && t.table.matches(nil, m) {
			out, _ := asTree(t.table.show(j))
			out[f.key] = w
			return out
		}
	}
	return j
}

// pick finds the form of a document, with the word for it.
func (f *forms) pick(root, base tree) (string, typ) {
	types, words := f.ready()
	for _, w := range words {
		if t := types[w]; t.table != nil && t.table.matches(root, base) {
			return w, t
		}
	}
	return "", types[""]
}

// matches says whether a document has the constants of the table that tell it from its siblings.
func (t *table) matches(root, base tree) bool {
	t.ready()
	for _, c := range t.fixed {
		var got any
		if rest, ok := strings.CutPrefix(c.path, "/"); ok {
			got = root.at(rest)
		} else {
			got = base.at(c.path)
		}
		want, ok := c.value.(string)
		have, _ := got.(string)
		if ok && !strings.EqualFold(want, have) {
			return false
		}
	}
	return true
}
