package spec

import (
	"strconv"
	"strings"
)

// override applies --set a.b.c=value to the outer file: dots separate keys, name[0] is an item of a
// list, "b.c" in quotes is one key, missing levels are made, values arrive as text.
func override(v *value, sets []string) Errors {
	var errs Errors
	for _, set := range sets {
		if msg := overrideOne(v, set); msg != "" {
			errs = append(errs, Error{File: v.doc.name, Msg: "--set " + set + ": " + msg})
		}
	}
	return errs
}

var indexed = re(`^([^\[\]]*)((?:\[\d+\])*)$`)

type step struct {
	key   string
	index int // used when key is ""
}

func overrideOne(v *value, set string) string {
	path, val, ok := cutSet(set)
	if !ok || path == "" {
		return "must have the form path=value"
	}
	steps, ok := split(path)
	if !ok {
		return "the path must have the form a.b.c or a[0].b"
	}
	steps = joinProperty(steps)
	at := v
	for i, st := range steps {
		last := i == len(steps)-1
		if at.shape == str {
			return strconv.Quote(at.text) + " is a string; " + st.String() + " cannot be set inside it"
		}
		next := at.child(st)
		switch {
		case last:
			at.put(st, &value{shape: str, text: val, doc: v.doc, derived: true})
		case next == nil || next.shape == null || next.scalar() && next.shape != str:
			next = &value{shape: mapping, doc: v.doc, derived: true}
			if steps[i+1].key == "" {
				next.shape = list
			}
			at.put(st, next)
		}
		if !last {
			at = next
		}
	}
	return ""
}

// joinProperty makes one key of the rest of properties.berth.environment: such properties have
// names with dots in them, and nothing below.
func joinProperty(steps []step) []step {
	if len(steps) < 3 || steps[0].key != "properties" || steps[1].key != "berth" && steps[1].key != "azureml" && steps[1].key != "mlflow" {
		return steps
	}
	key := steps[1].key
	for _, st := range steps[2:] {
		if st.key == "" {
			return steps
		}
		key += "." + st.key
	}
	return []step{steps[0], {key: key}}
}

// maxIndex bounds a[9999999].
const maxIndex = 10_000

// cutSet takes path=value apart at the first = that is not in quotes.
func cutSet(set string) (path, val string, ok bool) {
	quoted := false
	for i, c := range set {
		if c == '"' {
			quoted = !quoted
		}
		if c == '=' && !quoted {
			return set[:i], set[i+1:], true
		}
	}
	return strings.Cut(set, "=") // a quote that is not closed is a letter
}

func split(path string) ([]step, bool) {
	var steps []step
	if head, key, ok := strings.Cut(path, `."`); ok && strings.HasSuffix(key, `"`) {
		steps, ok := split(head)
		return append(steps, step{key: strings.TrimSuffix(key, `"`)}), ok
	}
	for _, seg := range strings.Split(path, ".") {
		m := indexed.FindStringSubmatch(seg)
		if m == nil || m[1] == "" {
			return nil, false
		}
		steps = append(steps, step{key: m[1]})
		for _, n := range strings.FieldsFunc(m[2], func(r rune) bool { return r == '[' || r == ']' }) {
			i, err := strconv.Atoi(n)
			if err != nil || i > maxIndex {
				return nil, false
			}
			steps = append(steps, step{index: i})
		}
	}
	return steps, true
}

func (st step) String() string {
	if st.key == "" {
		return "[" + strconv.Itoa(st.index) + "]"
	}
	return st.key
}

func (v *value) child(st step) *value {
	if st.key != "" {
		return v.get(st.key)
	}
	if v.shape == list && st.index < len(v.items) {
		return v.items[st.index]
	}
	return nil
}

func (v *value) put(st step, val *value) {
	if st.key != "" {
		if v.shape != mapping {
			*v = value{shape: mapping, doc: v.doc, line: v.line, col: v.col, derived: true}
		}
		v.set(st.key, val)
		return
	}
	if v.shape != list {
		*v = value{shape: list, doc: v.doc, line: v.line, col: v.col, derived: true}
	}
	for len(v.items) <= st.index {
		v.items = append(v.items, &value{shape: null, doc: v.doc, derived: true})
	}
	v.items[st.index] = val
}
