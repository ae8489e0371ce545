package arm

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/berthml/berth"
)

// node is an expression: a literal, or a call with what follows it.
type node struct {
	literal any // of a string or a number
	call    string
	args    []*node
	// then is what is taken of it, one after the other: members by name, elements by expression.
	then []*node
}

// expression is what stands between the brackets of a string, "" and false for one that is meant as
// it is.
func expression(s string) (string, bool) {
	if !strings.HasPrefix(s, "[") || strings.HasPrefix(s, "[[") || !strings.HasSuffix(s, "]") {
		return "", false
	}
	return s[1 : len(s)-1], true
}

// parse reads an expression.
func parse(text string) (*node, error) {
	if len(text) > maxExpression {
		return nil, berth.Errorf(berth.Invalid, "the expression has %d bytes; at most %d are allowed", len(text), maxExpression)
	}
	p := &parser{text: text}
	n, err := p.term(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at < len(p.text) {
		return nil, p.fail("%q was not expected", p.rest())
	}
	return n, nil
}

type parser struct {
	text string
	at   int
}

func (p *parser) fail(format string, args ...any) error {
	return berth.Errorf(berth.Invalid, "column %d of the expression: "+format, append([]any{p.at + 2}, args...)...)
}

func (p *parser) rest() string {
	r := p.text[p.at:]
	if len(r) > 20 {
		r = strings.ToValidUTF8(r[:20], "") + "…"
	}
	return r
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// take passes over a byte if it comes next.
func (p *parser) take(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// term reads a literal or a call and what is taken of it.
func (p *parser) term(depth int) (*node, error) {
	if depth > maxNesting {
		return nil, p.fail("it is nested more than %d deep", maxNesting)
	}
	p.space()
	if p.at >= len(p.text) {
		return nil, p.fail("it ends too early")
	}
	switch c := p.text[p.at]; {
	case c == '\'':
		s, err := p.quoted()
		if err != nil {
			return nil, err
		}
		return p.taken(&node{literal: s}, depth)
	case c == '-' || c >= '0' && c <= '9':
		return p.integer()
	}
	name := p.word()
	if name == "" {
		return nil, p.fail("a function, a number or a string in '' is expected, not %q", p.rest())
	}
	if !p.take('(') {
		return nil, p.fail("%q is not followed by (; strings stand in ''", name)
	}
	n := &node{call: name}
	for first := true; !p.take(')'); first = false {
		if !first && !p.take(',') {
			return nil, p.fail("a , or ) is expected, not %q", p.rest())
		}
		arg, err := p.term(depth + 1)
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, arg)
	}
	return p.taken(n, depth)
}

// taken reads .NAME and [EXPRESSION] after a value.
func (p *parser) taken(n *node, depth int) (*node, error) {
	for {
		switch {
		case p.take('.'):
			name := p.word()
			if name == "" {
				return nil, p.fail("the name of a member is expected after .")
			}
			n.then = append(n.then, &node{literal: name})
		case p.take('['):
			i, err := p.term(depth + 1)
			if err != nil {
				return nil, err
			}
			if !p.take(']') {
				return nil, p.fail("a ] is expected, not %q", p.rest())
			}
			n.then = append(n.then, i)
		default:
			return n, nil
		}
	}
}

func (p *parser) quoted() (string, error) {
	var b strings.Builder
	for i := p.at + 1; i < len(p.text); i++ {
		if p.text[i] != '\'' {
			b.WriteByte(p.text[i])
			continue
		}
		if i+1 < len(p.text) && p.text[i+1] == '\'' {
			b.WriteByte('\'')
			i++
			continue
		}
		p.at = i + 1
		return b.String(), nil
	}
	return "", p.fail("the string has no end")
}

func (p *parser) integer() (*node, error) {
	from := p.at
	for p.at++; p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9'; p.at++ {
	}
	n, err := strconv.ParseInt(p.text[from:p.at], 10, 64)
	if err != nil {
		p.at = from
		return nil, p.fail("%q is not an integer of 64 bits", p.rest())
	}
	return &node{literal: n}, nil
}

func (p *parser) word() string {
	from := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		if c != '_' && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9' && p.at > from) {
			break
		}
		p.at++
	}
	return p.text[from:p.at]
}

// parse reads an expression of the template. Those in copies are read again for each iteration.
func (t *Template) parse(text string) (*node, error) {
	if err := t.charge(len(text)); err != nil {
		return nil, err
	}
	return parse(text)
}

// charge bounds the work of evaluation, by the bytes that are read for it.
func (t *Template) charge(n int) error {
	if t.bytes += n; t.bytes > maxRead {
		return berth.Errorf(berth.Limit, "evaluating this template takes too much work; its expressions and their arguments may have %d MiB, counted each time they are evaluated", maxRead>>20)
	}
	return t.gone()
}

// gone is an error when nobody waits for the template any more.
func (t *Template) gone() error {
	if err := t.ended(); err != nil {
		return berth.Errorf(berth.Unavailable, "the request was cut off before the template was done; send it again: %w", err)
	}
	return nil
}

// eval is the value of an expression.
func (t *Template) eval(n *node) (any, error) {
	if n.call == "" {
		return t.takeAll(n.literal, n.then)
	}
	f := t.functions[strings.ToLower(n.call)]
	if f.run == nil && f.lazy == nil {
		return nil, unknownFunction(n.call)
	}
	if len(n.args) < f.least || f.most >= 0 && len(n.args) > f.most {
		return nil, berth.Errorf(berth.Invalid, "%s takes %s, not %d", n.call, f.takes(), len(n.args))
	}
	var v any
	var err error
	if f.lazy != nil {
		v, err = f.lazy(t, n.args)
	} else {
		args := make([]any, len(n.args))
		for i, a := range n.args {
			if args[i], err = t.eval(a); err != nil {
				return nil, err
			}
			if err = t.charge(size(args[i], 0)); err != nil {
				return nil, err
			}
		}
		v, err = f.run(t, args)
	}
	if err != nil {
		return nil, within(n.call, err)
	}
	if err := t.spend(v); err != nil {
		return nil, err
	}
	return t.takeAll(v, n.then)
}

// within names the function an error comes from, once.
func within(call string, err error) error {
	if strings.Contains(err.Error(), ": ") || strings.HasPrefix(err.Error(), "there is no") {
		return err
	}
	return berth.Errorf(berth.CodeOf(err), "%s: %w", call, err)
}

// spend bounds what evaluation makes.
func (t *Template) spend(v any) error {
	n := size(v, 0)
	t.work += n
	if n > maxValue || t.work > maxWork {
		return berth.Errorf(berth.Limit, "the values of this template are too large; one may have %d KiB, all together %d MiB", maxValue>>10, maxWork>>20)
	}
	return nil
}

// size is about how many bytes a value has.
func size(v any, depth int) int {
	if depth > maxNesting {
		return maxValue + 1
	}
	n := 8
	switch v := v.(type) {
	case string:
		n += len(v)
	case []any:
		for _, e := range v {
			if n += size(e, depth+1); n > maxValue {
				return n
			}
		}
	case map[string]any:
		for k, e := range v {
			if n += len(k) + size(e, depth+1); n > maxValue {
				return n
			}
		}
	}
	return n
}

// takeAll takes members and elements of a value.
func (t *Template) takeAll(v any, then []*node) (any, error) {
	for _, n := range then {
		key, err := t.eval(n)
		if err != nil {
			return nil, err
		}
		switch at := v.(type) {
		case map[string]any:
			name, ok := key.(string)
			if !ok {
				return nil, berth.Errorf(berth.Invalid, "a member of an object is named by a string, not by %s", kindOf(key))
			}
			k := lookUp(at, name)
			if k == "" {
				return nil, berth.Errorf(berth.Invalid, "the object has no member %q; it has %s", name, strings.Join(keys(at), ", "))
			}
			v = at[k]
		case []any:
			i, ok := number(key)
			if !ok || i < 0 || i >= int64(len(at)) {
				return nil, berth.Errorf(berth.Invalid, "the array has %d elements; index %v is not one of them", len(at), key)
			}
			v = at[i]
		default:
			return nil, berth.Errorf(berth.Invalid, "%v cannot be taken of %s", key, kindOf(v))
		}
	}
	return v, nil
}

// value evaluates all expressions in a part of a template.
func (t *Template) value(where string, v any) (any, error) { return t.valueAt(where, v, 0) }

func (t *Template) valueAt(where string, v any, depth int) (any, error) {
	if depth > maxNesting {
		return nil, wrong(where, "it is nested more than %d deep", maxNesting)
	}
	switch v := v.(type) {
	case string:
		text, ok := expression(v)
		if !ok {
			if strings.HasPrefix(v, "[[") {
				v = v[1:]
			}
			return v, nil
		}
		n, err := t.parse(text)
		if err != nil {
			return nil, at(where, err)
		}
		out, err := t.eval(n)
		return out, at(where, err)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = t.valueAt(where+"["+strconv.Itoa(i)+"]", e, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		return t.object(where, v, depth)
	}
	return v, nil
}

// object evaluates an object; members named copy are loops.
func (t *Template) object(where string, v map[string]any, depth int) (any, error) {
	out := make(map[string]any, len(v))
	for _, k := range keys(v) {
		if list, ok := v[k].([]any); ok && k == "copy" {
			if err := t.copyInto(where+".copy", list, out, depth); err != nil {
				return nil, err
			}
			continue
		}
		name := k
		if text, ok := expression(k); ok {
			n, err := t.parse(text)
			if err != nil {
				return nil, at(where, err)
			}
			got, err := t.eval(n)
			if err != nil {
				return nil, at(where, err)
			}
			if name, ok = got.(string); !ok || !utf8.ValidString(name) {
				return nil, wrong(where, "the name of a member must be a string, not %s", kindOf(got))
			}
		}
		var err error
		if out[name], err = t.valueAt(where+"."+k, v[k], depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scan checks the names in the expressions of a part of a template, without evaluating any.
func (t *Template) scan(where string, v any, depth int) error {
	if depth > maxNesting {
		return wrong(where, "it is nested more than %d deep", maxNesting)
	}
	switch v := v.(type) {
	case string:
		if text, ok := expression(v); ok {
			n, err := t.parse(text)
			if err == nil {
				err = t.known(n)
			}
			return at(where, err)
		}
	case []any:
		for i, e := range v {
			if err := t.scan(where+"["+strconv.Itoa(i)+"]", e, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range keys(v) {
			if err := t.scan(where+"."+k, k, depth+1); err != nil {
				return err
			}
			if err := t.scan(where+"."+k, v[k], depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// known says whether an expression calls what there is.
func (t *Template) known(n *node) error {
	if n.call != "" {
		f := t.functions[strings.ToLower(n.call)]
		if f.run == nil && f.lazy == nil {
			return unknownFunction(n.call)
		}
		if len(n.args) < f.least || f.most >= 0 && len(n.args) > f.most {
			return berth.Errorf(berth.Invalid, "%s takes %s, not %d", n.call, f.takes(), len(n.args))
		}
		if name, ok := literal(n.args); ok {
			switch {
			case strings.EqualFold(n.call, "parameters") && lookUp(t.parameters, name) == "":
				return berth.Errorf(berth.Invalid, "there is no parameter %q", name)
			case strings.EqualFold(n.call, "variables") && lookUp(t.variables, name) == "":
				return berth.Errorf(berth.Invalid, "there is no variable %q", name)
			}
		}
	}
	for _, list := range [][]*node{n.args, n.then} {
		for _, a := range list {
			if err := t.known(a); err != nil {
				return err
			}
		}
	}
	return nil
}

func literal(args []*node) (string, bool) {
	if len(args) != 1 || args[0].call != "" {
		return "", false
	}
	s, ok := args[0].literal.(string)
	return s, ok
}
