package jmes

import "fmt"

// power is how strongly a token binds what stands left of it; those not named end an expression.
func power(k kind) int {
	switch k {
	case pipe:
		return 1
	case or:
		return 2
	case and:
		return 3
	case eq, ne, lt, le, gt, ge:
		return 5
	case flatten:
		return 9
	case star:
		return 20
	case filter:
		return 21
	case dot:
		return 40
	case not:
		return 45
	case lbrace:
		return 50
	case lbracket:
		return 55
	case lparen:
		return 60
	}
	return 0
}

// projectionEnd is the power below which a projection is over: a | b takes the whole list, a.b each
// item.
const projectionEnd = 10

// maxDepth bounds how deep a query may nest; nobody writes such a thing, but it should not end the
// program.
const maxDepth = 500

type parser struct {
	query  string
	tokens []token
	i      int
	depth  int
}

func (p *parser) now() token { return p.tokens[p.i] }

func (p *parser) next() token {
	t := p.tokens[p.i]
	if t.kind != end {
		p.i++
	}
	return t
}

func (p *parser) fail(t token, format string, args ...any) error {
	return &SyntaxError{Query: p.query, At: t.at, Msg: fmt.Sprintf(format, args...)}
}

// failCall is fail for a call that is written well.
func (p *parser) failCall(t token, format string, args ...any) error {
	return &SyntaxError{Query: p.query, At: t.at, Msg: fmt.Sprintf(format, args...), Call: true}
}

func (p *parser) unexpected(want string) error {
	t := p.now()
	if t.kind == end {
		return p.fail(t, "the query ends too early: %s", want)
	}
	return p.fail(t, "unexpected %s: %s", t.text, want)
}

func (p *parser) expect(k kind, want string) error {
	if p.now().kind != k {
		return p.unexpected(want)
	}
	p.next()
	return nil
}

// expression reads as long as what follows binds more strongly than min.
func (p *parser) expression(min int) (node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(p.now(), "the query is nested too deeply")
	}
	defer func() { p.depth-- }()
	left, err := p.prefix()
	for err == nil && power(p.now().kind) > min {
		left, err = p.infix(left)
	}
	return left, err
}

// prefix reads what can begin an expression.
func (p *parser) prefix() (node, error) {
	t := p.next()
	switch t.kind {
	case literal, raw:
		return constant{t.value}, nil
	case name:
		if p.now().kind == lparen {
			return p.call(t)
		}
		return field(t.text), nil
	case quoted:
		if p.now().kind == lparen {
			return nil, p.fail(t, "a function name must not be quoted")
		}
		return field(t.value.(string)), nil
	case star:
		return p.project(values{}, power(star))
	case filter:
		return p.filter(identity{})
	case lbrace:
		return p.hash()
	case lparen:
		n, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		return n, p.expect(rparen, "a ) is missing")
	case flatten:
		return p.project(flat{identity{}}, power(flatten))
	case not:
		n, err := p.expression(power(not))
		return negation{n}, err
	case lbracket:
		if k := p.now().kind; k == number || k == colon {
			n, slice, err := p.index(identity{})
			if err != nil || !slice {
				return n, err
			}
			return p.project(n, power(star))
		}
		if p.now().kind == star && p.tokens[p.i+1].kind == rbracket {
			p.next()
			p.next()
			return p.project(identity{}, power(star))
		}
		return p.list()
	case current:
		return identity{}, nil
	}
	if t.kind != end {
		p.i--
	}
	return nil, p.unexpected("expected a name, a value or a bracket")
}

// infix reads what can follow an expression.
func (p *parser) infix(left node) (node, error) {
	t := p.next()
	switch t.kind {
	case dot:
		if p.now().kind == star {
			p.next()
			return p.project(chain{left, values{}}, power(dot))
		}
		right, err := p.afterDot(power(dot))
		return chain{left, right}, err
	case pipe:
		right, err := p.expression(power(pipe))
		return chain{left, right}, err
	case or:
		right, err := p.expression(power(or))
		return either{left, right}, err
	case and:
		right, err := p.expression(power(and))
		return both{left, right}, err
	case eq, ne, lt, le, gt, ge:
		right, err := p.expression(power(t.kind))
		return comparison{t.kind, left, right}, err
	case flatten:
		return p.project(flat{left}, power(flatten))
	case filter:
		return p.filter(left)
	case lbracket:
		if k := p.now().kind; k == number || k == colon {
			n, slice, err := p.index(left)
			if err != nil || !slice {
				return n, err
			}
			return p.project(n, power(star))
		}
		if err := p.expect(star, "expected a number, a slice or *"); err != nil {
			return nil, err
		}
		if err := p.expect(rbracket, "a ] is missing"); err != nil {
			return nil, err
		}
		return p.project(left, power(star))
	}
	p.i--
	return nil, p.unexpected("expected an operator")
}

// project reads what is to be done with each item of the list that of gives.
func (p *parser) project(of node, binding int) (node, error) {
	each, err := p.rest(binding)
	return projection{of, each}, err
}

// rest is the right side of a projection.
func (p *parser) rest(binding int) (node, error) {
	switch k := p.now().kind; {
	case power(k) < projectionEnd:
		return identity{}, nil
	case k == lbracket, k == filter:
		return p.expression(binding)
	case k == dot:
		p.next()
		return p.afterDot(binding)
	}
	return nil, p.unexpected("expected a . or a [")
}

// afterDot is a name, a list, an object or a function.
func (p *parser) afterDot(binding int) (node, error) {
	switch p.now().kind {
	case name, quoted, star:
		return p.expression(binding)
	case lbracket:
		p.next()
		return p.list()
	case lbrace:
		p.next()
		return p.hash()
	}
	return nil, p.unexpected("expected a name, *, [ or { after the dot")
}

// filter reads ?condition] after its bracket, and the projection that follows.
func (p *parser) filter(of node) (node, error) {
	condition, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	if err := p.expect(rbracket, "expected a ] to close the filter"); err != nil {
		return nil, err
	}
	each := node(identity{})
	if p.now().kind != flatten {
		if each, err = p.rest(power(filter)); err != nil {
			return nil, err
		}
	}
	return selection{of, condition, each}, nil
}

// index reads 1] or 1:2:3] after its bracket.
func (p *parser) index(of node) (n node, slice bool, err error) {
	var parts [3]*int
	colons := 0
	for p.now().kind != rbracket {
		t := p.now()
		switch {
		case t.kind == number && parts[colons] == nil:
			v := t.value.(int)
			parts[colons] = &v
		case t.kind == colon && colons < 2:
			colons++
		default:
			return nil, false, p.unexpected("expected a ] to close the index")
		}
		p.next()
	}
	at := p.now()
	p.next()
	if colons == 0 {
		return item{of, *parts[0]}, false, nil
	}
	if parts[2] != nil && *parts[2] == 0 {
		return nil, false, p.fail(at, "the step of a slice cannot be 0")
	}
	return cut{of, parts}, true, nil
}

// list reads a, b] after its bracket.
func (p *parser) list() (node, error) {
	var items multilist
	for {
		n, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		items = append(items, n)
		if p.now().kind == rbracket {
			p.next()
			return items, nil
		}
		if err := p.expect(comma, "expected a , or a ]"); err != nil {
			return nil, err
		}
	}
}

// hash reads a: b, c: d} after its brace.
func (p *parser) hash() (node, error) {
	var out multihash
	for {
		t := p.next()
		if t.kind != name && t.kind != quoted {
			if t.kind != end {
				p.i--
			}
			return nil, p.unexpected("expected the name of a member")
		}
		if err := p.expect(colon, "expected a : after the name of a member"); err != nil {
			return nil, err
		}
		n, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		out = append(out, pair{t.value.(string), n})
		if p.now().kind == rbrace {
			p.next()
			return out, nil
		}
		if err := p.expect(comma, "expected a , or a }"); err != nil {
			return nil, err
		}
	}
}

// call reads the arguments of a function.
func (p *parser) call(t token) (node, error) {
	p.next()
	f, ok := functions()[t.text]
	if !ok {
		return nil, p.failCall(t, "there is no function %s", t.text)
	}
	var args []node
	for p.now().kind != rparen {
		n, err := p.argument()
		if err != nil {
			return nil, err
		}
		args = append(args, n)
		if p.now().kind == rparen {
			break
		}
		if err := p.expect(comma, "expected a , or a )"); err != nil {
			return nil, err
		}
		if p.now().kind == rparen {
			return nil, p.unexpected("expected an argument after the ,")
		}
	}
	p.next()
	if len(args) < len(f.takes) || len(args) > len(f.takes) && !f.more {
		return nil, p.failCall(t, "%s takes %s, not %d", t.text, f.count(), len(args))
	}
	return invocation{t.text, f, args}, nil
}

// argument is an expression, or &expression, which the function itself applies.
func (p *parser) argument() (node, error) {
	if p.now().kind != amp {
		return p.expression(0)
	}
	p.next()
	n, err := p.expression(0)
	return reference{n}, err
}
