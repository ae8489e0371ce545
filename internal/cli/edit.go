package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
)

// The grammar of az's generic update: --set PATH=VALUE …, --add PATH VALUE|KEY=VALUE …, --remove
// PATH [INDEX], done in the order they are written, on the entity as `show` prints it.

// change is one --set, --add or --remove, or flag: a --set that another flag is short for.
type change struct {
	op    string
	words []string
}

// edits are the changes a command line asks for.
type edits struct {
	list        []change
	forceString bool
	python      bool // texts in tags and properties are written as az writes them: True for true
}

func (e *edits) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	for _, op := range []struct {
		name, help string
		arity      arity
	}{
		{"set", "PATH=VALUE …: set fields, for example tags.owner=ann", many},
		{"add", "PATH VALUE|KEY=VALUE …: append to a list", list},
		{"remove", "PATH [INDEX]: remove a field, or an item of a list", indexed},
	} {
		f.Var(&wordGroups{then: func(words []string) { e.list = append(e.list, change{op.name, words}) }}, op.name, op.help)
		takesMany(f.Lookup(op.name), op.arity)
	}
	f.BoolVar(&e.forceString, "force-string", false, "treat values as strings, not as JSON")
}

// mentions reports whether a change is about a field or what is in it.
func (e *edits) mentions(field string) bool {
	return slices.ContainsFunc(e.list, func(c change) bool {
		return slices.ContainsFunc(c.words, func(w string) bool { return strings.HasPrefix(w, field) })
	})
}

// apply makes the changes.
func (e *edits) apply(m map[string]any) error {
	for _, c := range e.list {
		var err error
		switch c.op {
		case "set", "flag":
			for _, w := range c.words {
				if err = e.set(m, w, e.python && c.op == "set"); err != nil {
					break
				}
			}
		case "add":
			err = e.add(m, c.words)
		case "remove":
			err = remove(m, c.words)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *edits) set(m map[string]any, word string, python bool) error {
	path, value, err := splitSet(word)
	if err != nil {
		return err
	}
	where := "--set " + word
	parent, err := walk(m, path[:len(path)-1], where, true)
	if err != nil {
		return err
	}
	v := any(value)
	text := len(path) > 1 && (path[0].key == "tags" || path[0].key == "properties")
	switch {
	case e.forceString:
	case !text:
		v = parseValue(value)
	case python:
		v = pythonWord(value)
	}
	last := path[len(path)-1]
	return parent.put(last, v, where)
}

func (e *edits) add(m map[string]any, words []string) error {
	where := "--add " + strings.Join(words, " ")
	path, err := parsePath("--add", words[0])
	if err != nil {
		return err
	}
	if len(words) < 2 {
		return latef("%s: say what to add: PATH VALUE or PATH KEY=VALUE …", where)
	}
	parent, err := walk(m, path[:len(path)-1], where, true)
	if err != nil {
		return err
	}
	last := path[len(path)-1]
	old, err := parent.get(last, where)
	if err != nil {
		return err
	}
	items, ok := old.([]any)
	if !ok && old != nil {
		return berth.Errorf(berth.Invalid, "%s: %s is not a list", where, words[0])
	}
	items = slices.Clone(items)
	var object map[string]any
	for _, w := range words[1:] {
		if key, value, ok := strings.Cut(w, "="); ok {
			if object == nil {
				object = map[string]any{}
				items = append(items, object)
			}
			object[key] = value
			continue
		}
		object = nil
		if e.forceString {
			items = append(items, w)
		} else {
			items = append(items, parseValue(w))
		}
	}
	return parent.put(last, items, where)
}

func remove(m map[string]any, words []string) error {
	where := "--remove " + strings.Join(words, " ")
	path, err := parsePath("--remove", words[0])
	if err != nil {
		return err
	}
	if len(words) == 2 {
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return usagef("%s: the index %s is not a number", where, words[1])
		}
		path = append(path, step{index: n, list: true})
	}
	parent, err := walk(m, path[:len(path)-1], where, false)
	if err != nil {
		return err
	}
	return parent.drop(path[len(path)-1], where)
}

// step is a part of a path: a key, an index, or the item whose member has a value.
type step struct {
	key    string
	list   bool // an index or a filter
	index  int
	filter string // of [filter=value]
	value  string
}

func (s step) String() string {
	switch {
	case s.filter != "":
		return "[" + s.filter + "=" + s.value + "]"
	case s.list:
		return "[" + strconv.Itoa(s.index) + "]"
	}
	return s.key
}

// splitSet takes PATH=VALUE apart at the first = that is not in brackets.
func splitSet(word string) ([]step, string, error) {
	open := -1 // where the bracket is that is not closed yet
	quoted := false
	for i, c := range word {
		switch c {
		case '"':
			quoted = !quoted
		case '[':
			open = i
		case ']':
			open = -1
		case '=':
			if open >= 0 || quoted {
				continue
			}
			path, err := parsePath("--set", word[:i])
			return path, word[i+1:], err
		}
	}
	if open >= 0 {
		return nil, "", latef("--set: this [ is not closed, at character %d of %q", len([]rune(word[:open]))+1, word)
	}
	return nil, "", latef("--set %s: give PATH=VALUE; there is no =", word)
}

// parsePath reads a.b[0].c[name=x]; a."b.c" is a key with a dot in it.
func parsePath(flag, text string) ([]step, error) {
	bad := func(at int, format string, args ...any) error {
		return usagef("%s: %s, at character %d of %q", flag, fmt.Sprintf(format, args...), len([]rune(text[:at]))+1, text)
	}
	var path []step
	for i := 0; i < len(text); {
		switch text[i] {
		case '.':
			if i == 0 || i == len(text)-1 || text[i+1] == '.' {
				return nil, bad(i, "a name is missing beside the dot")
			}
			i++
		case '"':
			end := strings.IndexByte(text[i+1:], '"')
			if end < 0 {
				return nil, bad(i, "this quote is not closed")
			}
			path = append(path, step{key: text[i+1 : i+1+end]})
			if i += end + 2; i < len(text) && text[i] != '.' && text[i] != '[' {
				return nil, bad(i, "expected a . or a [ after the quote")
			}
		case ']':
			return nil, bad(i, "this ] closes nothing")
		case '[':
			end := strings.IndexByte(text[i:], ']')
			if end < 0 {
				return nil, bad(i, "this [ is not closed")
			}
			inner := text[i+1 : i+end]
			if len(path) == 0 {
				return nil, bad(i, "expected a name before the [")
			}
			if key, value, ok := strings.Cut(inner, "="); ok {
				if key == "" {
					return nil, bad(i+1, "the name is missing before the =")
				}
				path = append(path, step{list: true, filter: key, value: value})
			} else if n, err := strconv.Atoi(inner); err != nil {
				return nil, bad(i+1, "%q is neither an index nor KEY=VALUE", inner)
			} else {
				path = append(path, step{list: true, index: n})
			}
			i += end + 1
			if i < len(text) && text[i] != '.' && text[i] != '[' {
				return nil, bad(i, "expected a . or a [ after the ]")
			}
		default:
			end := strings.IndexAny(text[i:], ".[]")
			if end < 0 {
				end = len(text) - i
			}
			path = append(path, step{key: text[i : i+end]})
			i += end
		}
	}
	if len(path) == 0 {
		return nil, usagef("%s: the path is empty", flag)
	}
	return path, nil
}

// place is an object or a list in an entity, and how to replace it there.
type place struct {
	v       any
	replace func(v any)
}

// walk goes down a path. Where make is set, what is not there becomes an object on the way.
func walk(m map[string]any, path []step, where string, create bool) (place, error) {
	p := place{v: m}
	for _, s := range path {
		v, err := p.get(s, where)
		if err != nil {
			return p, err
		}
		if v == nil {
			if !create || s.list {
				return p, missing(where, p, s)
			}
			v = map[string]any{}
			if err := p.put(s, v, where); err != nil {
				return p, err
			}
		}
		above := p
		p = place{v: v, replace: func(v any) { _ = above.put(s, v, where) }} // it was found there
	}
	return p, nil
}

func missing(where string, p place, s step) error {
	msg := fmt.Sprintf("%s: there is no %s", where, s)
	if m, ok := p.v.(map[string]any); ok {
		if near := nearest(s.key, keys(m)); near != "" {
			msg += fmt.Sprintf("; did you mean %s?", near)
		} else {
			msg += "; there are " + strings.Join(keys(m), ", ")
		}
	}
	return berth.Errorf(berth.Invalid, "%s", msg)
}

// find is the place of a step in a list.
func (p place) find(s step, where string) ([]any, int, error) {
	items, ok := p.v.([]any)
	if !ok {
		return nil, 0, berth.Errorf(berth.Invalid, "%s: %s is an item of a list, and this is not a list", where, s)
	}
	if s.filter == "" {
		i := s.index
		if i < 0 {
			i += len(items)
		}
		if i < 0 || i >= len(items) {
			return nil, 0, berth.Errorf(berth.Invalid, "%s: there is no item %s; the list has %d", where, s, len(items))
		}
		return items, i, nil
	}
	found := -1
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok || fmt.Sprint(m[s.filter]) != s.value {
			continue
		}
		if found >= 0 {
			return nil, 0, berth.Errorf(berth.Invalid, "%s: %s matches more than one item", where, s)
		}
		found = i
	}
	if found < 0 {
		return nil, 0, berth.Errorf(berth.Invalid, "%s: %s matches no item", where, s)
	}
	return items, found, nil
}

// get is what a step leads to; a key that is not there leads to nil.
func (p place) get(s step, where string) (any, error) {
	if s.list {
		items, i, err := p.find(s, where)
		if err != nil {
			return nil, err
		}
		return items[i], nil
	}
	m, ok := p.v.(map[string]any)
	if !ok {
		return nil, berth.Errorf(berth.Invalid, "%s: %s has no members, so no %s", where, describe(p.v), s)
	}
	return m[s.key], nil
}

func (p place) put(s step, v any, where string) error {
	if s.list {
		items, i, err := p.find(s, where)
		if err == nil {
			items[i] = v
		}
		return err
	}
	m, ok := p.v.(map[string]any)
	if !ok {
		return berth.Errorf(berth.Invalid, "%s: %s has no members, so no %s", where, describe(p.v), s)
	}
	m[s.key] = v
	return nil
}

func (p place) drop(s step, where string) error {
	if s.list {
		items, i, err := p.find(s, where)
		if err == nil {
			p.replace(slices.Delete(slices.Clone(items), i, i+1))
		}
		return err
	}
	m, ok := p.v.(map[string]any)
	if !ok {
		return berth.Errorf(berth.Invalid, "%s: %s has no members, so no %s", where, describe(p.v), s)
	}
	if _, there := m[s.key]; !there {
		return missing(where, p, s)
	}
	delete(m, s.key)
	return nil
}

func describe(v any) string {
	switch x := v.(type) {
	case []any:
		return "a list"
	case string:
		return strconv.Quote(x)
	}
	return fmt.Sprint(v)
}

// parseValue reads JSON where it is JSON, what Python would write for it where it is that, and else
// text.
func parseValue(text string) any {
	if v, ok := decodeJSON(text); ok {
		return v
	}
	if v, ok := decodeJSON(fromPython(text)); ok {
		return v
	}
	return text
}

// pythonWord is what az makes of a value where text has to be: it is read as JSON and written as
// Python does.
func pythonWord(text string) string {
	switch x := parseValue(text).(type) {
	case string:
		return x
	case bool:
		if x {
			return "True"
		}
		return "False"
	case json.Number:
		if strings.ContainsAny(x.String(), ".eE") {
			if f, err := x.Float64(); err == nil && math.Abs(f) < 1e16 && (f == 0 || math.Abs(f) >= 1e-4) {
				word := strconv.FormatFloat(f, 'f', -1, 64)
				if !strings.Contains(word, ".") {
					word += ".0"
				}
				return word
			}
		}
		return x.String()
	}
	return text
}

func decodeJSON(text string) (any, bool) {
	if !json.Valid([]byte(text)) {
		return nil, false
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err == nil
}

// fromPython writes a Python literal as JSON: 'text', True, False, None. Shells that eat double
// quotes make people write it.
func fromPython(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\'' || c == '"':
			j := i + 1
			for j < len(text) && text[j] != c {
				if text[j] == '\\' {
					j++
				}
				j++
			}
			if j >= len(text) {
				return ""
			}
			inner := text[i+1 : j]
			if c == '\'' {
				inner = strings.ReplaceAll(strings.ReplaceAll(inner, `\'`, `'`), `"`, `\"`)
			}
			b.WriteString(`"` + inner + `"`)
			i = j + 1
		case c >= 'A' && c <= 'Z':
			j := i
			for j < len(text) && (text[j] >= 'a' && text[j] <= 'z' || text[j] >= 'A' && text[j] <= 'Z') {
				j++
			}
			switch text[i:j] {
			case "True", "False":
				b.WriteString(strings.ToLower(text[i:j]))
			case "None":
				b.WriteString("null")
			default:
				return ""
			}
			i = j
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}
