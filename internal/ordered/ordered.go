// Package ordered encodes JSON with the members of objects in the order that another document has
// them in. It lets code work on plain maps, which know no order, and still give a document back as
// its author wrote it.
package ordered

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Marshal encodes v, a decoded JSON value, as encoding/json does but for order: members of an
// object are in the order they have at the same place of like[0], then of like[1] and so on; those
// that are nowhere in like follow by name. What is in like but not in v is left out. A
// json.RawMessage in v is copied as it is, so it must be valid.
func Marshal(v any, like ...[]byte) ([]byte, error) {
	var s *Shape
	size := 0
	for _, text := range like {
		s = s.merge(Parse(text))
		size += len(text)
	}
	return encode(make([]byte, 0, 2*size+1024), v, s)
}

func encode(b []byte, v any, s *Shape) ([]byte, error) {
	switch x := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, x), nil
	case int:
		return strconv.AppendInt(b, int64(x), 10), nil
	case string:
		return text(b, x)
	case json.RawMessage:
		if len(x) == 0 {
			return append(b, "null"...), nil
		}
		return append(b, x...), nil
	case map[string]any:
		if x == nil {
			return append(b, "null"...), nil
		}
		return object(b, x, s)
	case []any:
		if x == nil {
			return append(b, "null"...), nil
		}
		return array(b, x, s)
	}
	raw, err := json.Marshal(v)
	return append(b, raw...), err
}

// text appends a string as encoding/json writes it; most need no escapes.
func text(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			raw, err := json.Marshal(s)
			return append(b, raw...), err
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}

func array(b []byte, list []any, s *Shape) (_ []byte, err error) {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = encode(b, v, s.Item(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func object(b []byte, m map[string]any, s *Shape) (_ []byte, err error) {
	b = append(b, '{')
	n := 0
	member := func(k string, v any, inner *Shape) error {
		if n > 0 {
			b = append(b, ',')
		}
		n++
		if b, err = text(b, k); err == nil {
			b, err = encode(append(b, ':'), v, inner)
		}
		return err
	}
	if s != nil {
		for i, k := range s.keys {
			if v, ok := m[k]; ok {
				if err := member(k, v, s.inner[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	if n < len(m) {
		for _, k := range s.others(m) {
			if err := member(k, m[k], nil); err != nil {
				return nil, err
			}
		}
	}
	return append(b, '}'), nil
}

// others are the keys of m that a shape does not have, by name.
func (s *Shape) others(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		if s == nil || s.index(k) < 0 {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}
