package spec

import (
	"math/big"
	"strings"
)

// shape is what a YAML value is, after YAML 1.1's rules.
type shape int

const (
	null shape = iota
	boolean
	integer
	float
	str
	date // a date or time stamp; text holds it as written
	list
	mapping
)

func (k shape) String() string {
	return [...]string{"null", "a boolean", "an integer", "a number", "a string", "a date", "a list", "a mapping"}[k]
}

// value is one YAML value with its place.
type value struct {
	shape     shape
	text      string // of str and date
	num       *big.Int
	real      float64
	yes       bool
	items     []*value
	pairs     []pair
	doc       *document
	line, col int
	derived   bool // made by us (--set, a default), not read from the file
}

// pair is an entry of a mapping. The key's place is where unknown keys are reported.
type pair struct {
	key  string
	at   *value // the key itself
	val  *value
	text bool // the key was text, not a number or a boolean
}

// get finds the value of key, nil when absent.
func (v *value) get(key string) *value {
	if v == nil || v.shape != mapping {
		return nil
	}
	for i := range v.pairs {
		if v.pairs[i].key == key {
			return v.pairs[i].val
		}
	}
	return nil
}

// textOf is the text at key, "" when it is absent or no text.
func (v *value) textOf(key string) string {
	if w := v.get(key); w != nil && w.shape == str {
		return w.text
	}
	return ""
}

// has says whether key is there and not null.
func (v *value) has(key string) bool {
	w := v.get(key)
	return w != nil && w.shape != null
}

// set replaces or adds key.
func (v *value) set(key string, val *value) {
	for i := range v.pairs {
		if v.pairs[i].key == key {
			v.pairs[i].val = val
			return
		}
	}
	v.pairs = append(v.pairs, pair{key: key, at: val, val: val, text: true})
}

// without is v less the keys; v itself is untouched.
func (v *value) without(keys ...string) *value {
	w := *v
	w.pairs = nil
next:
	for _, p := range v.pairs {
		for _, k := range keys {
			if p.key == k {
				continue next
			}
		}
		w.pairs = append(w.pairs, p)
	}
	return &w
}

// with is v with key set to val; v itself is untouched.
func (v *value) with(key string, val *value) *value {
	w := *v
	w.pairs = append([]pair(nil), v.pairs...)
	w.set(key, val)
	return &w
}

// newText is a text value at v's place.
func (v *value) newText(s string) *value {
	return &value{shape: str, text: s, doc: v.doc, line: v.line, col: v.col, derived: true}
}

// newMap is an empty mapping at v's place.
func (v *value) newMap() *value {
	return &value{shape: mapping, doc: v.doc, line: v.line, col: v.col, derived: true}
}

// scalar says whether v is a single value.
func (v *value) scalar() bool { return v.shape != list && v.shape != mapping }

// python is v's text as Python's str() writes it: True, 1.0, 1e-05, {'a': [1, 'b']}.
func (v *value) python() string {
	switch v.shape {
	case list:
		parts := make([]string, len(v.items))
		for i, it := range v.items {
			parts[i] = it.repr()
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case mapping:
		parts := make([]string, len(v.pairs))
		for i, p := range v.pairs {
			parts[i] = p.at.repr() + ": " + p.val.repr()
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case boolean:
		if v.yes {
			return "True"
		}
		return "False"
	case integer:
		return v.num.String()
	case float:
		return pythonFloat(v.real)
	case null:
		return "None"
	}
	return v.text
}

// repr is python for a value inside another: text stands in quotes.
func (v *value) repr() string {
	if v.shape != str {
		return v.python()
	}
	quote := "'"
	if strings.Contains(v.text, "'") && !strings.Contains(v.text, `"`) {
		quote = `"`
	}
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, quote, `\`+quote)
	return quote + escape.Replace(v.text) + quote
}

// raw is v as JSON values, numbers and booleans kept as they are.
func (v *value) raw() any {
	switch v.shape {
	case date:
		return isoStamp(v.text)
	case null:
		return nil
	case boolean:
		return v.yes
	case integer:
		return number(v.num.String())
	case float:
		return number(jsonFloat(v.real))
	case list:
		out := make([]any, 0, len(v.items))
		for _, it := range v.items {
			out = append(out, it.raw())
		}
		return out
	case mapping:
		out := newDict(len(v.pairs))
		for _, p := range v.pairs {
			out.add(p.key, p.val.raw())
		}
		return out
	}
	return v.text
}

// int64 is the whole number v holds, ok false when it does not fit.
func (v *value) int64() (int64, bool) {
	if v.shape != integer || !v.num.IsInt64() {
		return 0, false
	}
	return v.num.Int64(), true
}
