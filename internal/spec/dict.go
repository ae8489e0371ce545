package spec

import (
	"bytes"
	"encoding/json"
)

// dict is a JSON object whose keys are the user's names: inputs, tags, steps. It is written in the
// order of the file, where a tree is written by name.
type dict struct {
	tree
	keys []string // in the order of the file; those that are no longer in the tree are skipped
}

func newDict(size int) *dict { return &dict{tree: make(tree, size), keys: make([]string, 0, size)} }

// add appends a member.
func (d *dict) add(key string, val any) {
	d.tree[key] = val
	d.keys = append(d.keys, key)
}

// some says whether there are members.
func (d *dict) some() bool { return d != nil && len(d.tree) > 0 }

// like is a dict of other values under the keys of d.
func (d *dict) like(m tree) *dict { return &dict{tree: m, keys: d.keys} }

// names are the keys of an object in the order they are written in.
func names(v any) []string {
	d, ok := v.(*dict)
	if !ok {
		t, _ := asTree(v)
		return sortedKeys(t)
	}
	out := make([]string, 0, len(d.tree))
	seen := make(map[string]bool, len(d.tree))
	for _, k := range d.keys {
		if _, ok := d.tree[k]; ok && !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	for _, k := range sortedKeys(d.tree) { // what a rule added
		if !seen[k] {
			out = append(out, k)
		}
	}
	return out
}

// encode writes JSON without escaping <, > and &.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := write(&b, v)
	return b.Bytes(), err
}

func write(b *bytes.Buffer, v any) error {
	switch x := v.(type) {
	case tree, map[string]any, *dict:
		t, _ := asTree(x)
		if t == nil {
			break
		}
		b.WriteByte('{')
		for i, k := range names(x) {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := write(b, k); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := write(b, t[k]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case []any:
		if x == nil {
			break
		}
		b.WriteByte('[')
		for i, e := range x {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := write(b, e); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	if n := b.Len(); n > 0 && b.Bytes()[n-1] == '\n' {
		b.Truncate(n - 1)
	}
	return err
}

// parse reads JSON, its objects as dicts.
func parse(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return parseValue(dec)
}

func parseValue(dec *json.Decoder) (any, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		out := newDict(0)
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			val, err := parseValue(dec)
			if err != nil {
				return nil, err
			}
			out.add(key.(string), val) // a key is a string, or Token fails
		}
		_, err = dec.Token()
		return out, err
	case json.Delim('['):
		out := []any{}
		for dec.More() {
			val, err := parseValue(dec)
			if err != nil {
				return nil, err
			}
			out = append(out, val)
		}
		_, err = dec.Token()
		return out, err
	}
	return t, nil
}
