package ordered

import (
	"encoding/json"
	"slices"
)

// Shape is what matters of a JSON value: the order of its members, and their shapes. That of a
// value without members is nil. An object has keys, each once; an array has none.
type Shape struct {
	keys  []string
	inner []*Shape
	at    map[string]int // where each key is; nil where there are few
}

// few is up to how many keys are searched one by one.
const few = 24

func (s *Shape) index(key string) int {
	if s.at == nil {
		return slices.Index(s.keys, key)
	}
	if i, ok := s.at[key]; ok {
		return i
	}
	return -1
}

func (s *Shape) add(key string, inner *Shape) {
	if i := s.index(key); i >= 0 {
		s.inner[i] = inner // the last of two is the one that counts
		return
	}
	s.keys, s.inner = append(s.keys, key), append(s.inner, inner)
	if s.at != nil {
		s.at[key] = len(s.keys) - 1
	} else if len(s.keys) > few {
		s.at = make(map[string]int, 2*len(s.keys))
		for i, k := range s.keys {
			s.at[k] = i
		}
	}
}

// Keys are an object's members in their order; there are none of anything else.
func (s *Shape) Keys() []string {
	if s == nil {
		return nil
	}
	return s.keys
}

// Member is the shape of an object's member, nil when there is none or it has no members itself.
func (s *Shape) Member(key string) *Shape {
	if s == nil {
		return nil
	}
	if i := s.index(key); i >= 0 {
		return s.inner[i]
	}
	return nil
}

// Item is the shape of an array's item.
func (s *Shape) Item(i int) *Shape {
	if s == nil || len(s.keys) > 0 || i >= len(s.inner) {
		return nil
	}
	return s.inner[i]
}

// merge is s with what only o has behind it. It may change s.
func (s *Shape) merge(o *Shape) *Shape {
	switch {
	case s == nil:
		return o
	case o == nil:
		return s
	case len(s.keys) > 0 && len(o.keys) > 0:
		for i, k := range o.keys {
			if j := s.index(k); j >= 0 {
				s.inner[j] = s.inner[j].merge(o.inner[i])
			} else {
				s.add(k, o.inner[i])
			}
		}
	case len(s.keys) == 0 && len(o.keys) == 0:
		for i := range s.inner {
			s.inner[i] = s.inner[i].merge(o.Item(i))
		}
	}
	return s
}

// Parse is the shape of a JSON text. Of a text that is not JSON it is anything.
func Parse(text []byte) *Shape {
	p := parser{text: text}
	return p.value()
}

type parser struct {
	text []byte
	i    int
}

// next is the next byte that is not a space, 0 at the end.
func (p *parser) next() byte {
	for ; p.i < len(p.text); p.i++ {
		switch c := p.text[p.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (p *parser) value() *Shape {
	switch p.next() {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		p.skipString()
	default:
		for p.i < len(p.text) && !ends(p.text[p.i]) {
			p.i++
		}
	}
	return nil
}

// ends says whether a byte is behind a number, true, false or null.
func ends(c byte) bool {
	switch c {
	case ',', ']', '}', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

func (p *parser) object() *Shape {
	s := &Shape{}
	p.i++
	for p.next() == '"' {
		begin := p.i
		plain := p.skipString()
		var key string
		if plain && p.i >= begin+2 {
			key = string(p.text[begin+1 : p.i-1])
		} else if json.Unmarshal(p.text[begin:p.i], &key) != nil {
			return s
		}
		if p.next() != ':' {
			return s
		}
		p.i++
		s.add(key, p.value())
		if p.next() != ',' {
			break
		}
		p.i++
	}
	p.close('}')
	return s
}

func (p *parser) array() *Shape {
	s := &Shape{}
	p.i++
	any := false
	for c := p.next(); c != ']' && c != 0; c = p.next() {
		inner := p.value()
		s.inner = append(s.inner, inner)
		any = any || inner != nil
		if p.next() != ',' {
			break
		}
		p.i++
	}
	p.close(']')
	if !any {
		return nil
	}
	return s
}

func (p *parser) close(c byte) {
	if p.next() == c {
		p.i++
	}
}

// skipString goes behind a string, and says whether it stands for itself.
func (p *parser) skipString() (plain bool) {
	plain = true
	for p.i++; p.i < len(p.text); p.i++ {
		switch c := p.text[p.i]; {
		case c == '"':
			p.i++
			return plain
		case c == '\\':
			plain = false
			p.i++
		case c >= 0x80:
			plain = false // it may be no UTF-8, which decoders replace
		}
	}
	return plain
}
