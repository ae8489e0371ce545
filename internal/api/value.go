package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/berthml/berth"
)

// decodeJSON decodes with numbers kept as text, so that a document comes back as it went in.
func decodeJSON(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return dec.Decode(v)
}

// object is the object at key of m, made when it is absent. Anything else there is the client's
// mistake.
func object(m map[string]any, key string) (map[string]any, error) {
	switch v := m[key].(type) {
	case map[string]any:
		return v, nil
	case nil:
		o := map[string]any{}
		m[key] = o
		return o, nil
	}
	return nil, berth.Errorf(berth.Invalid, "%s must be an object", key)
}

// cloneBody is a copy of a body with its properties, for an update to change: it may be run again,
// and must then begin with what was sent.
func cloneBody(body map[string]any) (copied, props map[string]any, err error) {
	copied = asMap(clone(body))
	props, err = object(copied, "properties")
	return copied, props, err
}

// clone copies objects and lists.
func clone(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, val := range x {
			out[k] = clone(val)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, val := range x {
			out[i] = clone(val)
		}
		return out
	}
	return v
}

// oneReading refuses objects with two members of the same name but for case: the parts of a server
// would not read the same one.
func oneReading(objects ...map[string]any) error {
	for _, m := range objects {
		seen := map[string]string{}
		for k := range m {
			same := strings.Map(smallest, k)
			if other, ok := seen[same]; ok {
				return berth.Errorf(berth.Invalid, "%q and %q are the same member; give one of them", other, k)
			}
			seen[same] = k
		}
	}
	return nil
}

// smallest is the smallest of the runes that differ from r in case only, as encoding/json compares
// names.
func smallest(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

// dig follows a dotted path; nil when something on the way is not there.
func dig(m map[string]any, path string) any {
	var v any = m
	for _, k := range strings.Split(path, ".") {
		o, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = o[k]
	}
	return v
}

// cut takes the value at a dotted path out of m.
func cut(m map[string]any, path string) (any, bool) {
	keys := strings.Split(path, ".")
	for _, k := range keys[:len(keys)-1] {
		o, ok := m[k].(map[string]any)
		if !ok {
			return nil, false
		}
		m = o
	}
	v, ok := m[keys[len(keys)-1]]
	delete(m, keys[len(keys)-1])
	return v, ok && v != nil
}

// setDefault gives m[key] a value when it has none.
func setDefault(m map[string]any, key string, v any) {
	if m[key] == nil {
		m[key] = v
	}
}

// orNull gives m the members it lacks, without a value: there are clients that take them for
// granted.
func orNull(m map[string]any, keys ...string) {
	for _, k := range keys {
		if _, ok := m[k]; !ok {
			m[k] = nil
		}
	}
}

// text is m[key] as a string, "" when it is something else.
func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}
