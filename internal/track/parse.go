package track

import (
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A body is read as Python reads JSON: NaN and Infinity are numbers. Values are nil, bool, string,
// number, list and object.
type (
	number string
	list   []any
	object map[string]any
)

var errJSON = errors.New("not JSON")

// What a body may hold: its values take memory by their number, not by the length of the text.
const (
	maxDepth  = 64      // how deep values are nested
	maxValues = 100_000 // all members and elements
)

// parseJSON reads one value and nothing after it. The error is errJSON, or says which limit the
// text is beyond.
func parseJSON(b []byte) (any, error) {
	p := parser{b: b}
	v, err := p.value(0)
	if err == nil {
		if p.space(); p.i != len(b) {
			err = errJSON
		}
	}
	return v, err
}

type parser struct {
	b      []byte
	i      int
	values int // read so far
}

func (p *parser) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

// is takes a character if it comes next.
func (p *parser) is(c byte) bool {
	p.space()
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) word(w string) bool {
	if len(p.b)-p.i >= len(w) && string(p.b[p.i:p.i+len(w)]) == w {
		p.i += len(w)
		return true
	}
	return false
}

func (p *parser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, invalid("The request is nested more than %d levels deep", maxDepth)
	}
	if p.values++; p.values > maxValues {
		return nil, invalid("The request has more than %d values; split it into several requests", maxValues)
	}
	p.space()
	if p.i >= len(p.b) {
		return nil, errJSON
	}
	switch c := p.b[p.i]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.list(depth)
	case c == '"':
		return p.text()
	case p.word("true"):
		return true, nil
	case p.word("false"):
		return false, nil
	case p.word("null"):
		return nil, nil
	}
	return p.number()
}

func (p *parser) object(depth int) (any, error) {
	p.i++
	m := object{}
	if p.is('}') {
		return m, nil
	}
	for {
		p.space()
		key, err := p.text()
		if err != nil || !p.is(':') {
			return nil, errJSON
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		m[key] = v
		if p.is(',') {
			continue
		}
		if p.is('}') {
			return m, nil
		}
		return nil, errJSON
	}
}

func (p *parser) list(depth int) (any, error) {
	p.i++
	l := list{}
	if p.is(']') {
		return l, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
		if p.is(',') {
			continue
		}
		if p.is(']') {
			return l, nil
		}
		return nil, errJSON
	}
}

func (p *parser) number() (number, error) {
	n, err := p.digits()
	return number(n), err
}

// digits is the text of a number, where it stands.
func (p *parser) digits() ([]byte, error) {
	start := p.i
	if p.i < len(p.b) && p.b[p.i] == '-' {
		p.i++
	}
	switch {
	case p.word("NaN"):
		return p.b[start:p.i], nil
	case p.word("Infinity"):
		return p.b[start:p.i], nil
	}
	whole := p.i
	p.skipDigits()
	if p.i == whole || p.b[whole] == '0' && p.i > whole+1 {
		return nil, errJSON
	}
	if p.i < len(p.b) && p.b[p.i] == '.' {
		p.i++
		if !p.skipDigits() {
			return nil, errJSON
		}
	}
	if p.i < len(p.b) && p.b[p.i]|0x20 == 'e' {
		p.i++
		if p.i < len(p.b) && (p.b[p.i] == '+' || p.b[p.i] == '-') {
			p.i++
		}
		if !p.skipDigits() {
			return nil, errJSON
		}
	}
	return p.b[start:p.i], nil
}

// skipDigits passes over digits and says whether there were any.
func (p *parser) skipDigits() bool {
	start := p.i
	for p.i < len(p.b) && isDigit(p.b[p.i]) {
		p.i++
	}
	return p.i > start
}

// text reads a string.
func (p *parser) text() (string, error) {
	if p.i >= len(p.b) || p.b[p.i] != '"' {
		return "", errJSON
	}
	p.i++
	start := p.i
	for p.i < len(p.b) {
		switch c := p.b[p.i]; {
		case c == '"':
			s := string(p.b[start:p.i])
			p.i++
			if !utf8.ValidString(s) {
				return "", errJSON
			}
			return s, nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", errJSON
		default:
			p.i++
		}
	}
	return "", errJSON
}

// escaped reads on in a string that has escapes.
func (p *parser) escaped(start int) (string, error) {
	out := append([]byte(nil), p.b[start:p.i]...)
	for p.i < len(p.b) {
		c := p.b[p.i]
		p.i++
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return "", errJSON
			}
			return string(out), nil
		case c < 0x20:
			return "", errJSON
		case c != '\\':
			out = append(out, c)
			continue
		}
		if p.i >= len(p.b) {
			break
		}
		c = p.b[p.i]
		p.i++
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := p.hex()
			if !ok {
				return "", errJSON
			}
			if utf16.IsSurrogate(r) {
				second := rune(0)
				if p.word(`\u`) {
					if second, ok = p.hex(); !ok {
						return "", errJSON
					}
				}
				r = utf16.DecodeRune(r, second)
			}
			out = utf8.AppendRune(out, r)
		default:
			return "", errJSON
		}
	}
	return "", errJSON
}

func (p *parser) hex() (rune, bool) {
	if len(p.b)-p.i < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.b[p.i:p.i+4]), 16, 16)
	p.i += 4
	return rune(n), err == nil
}
