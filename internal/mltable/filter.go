package mltable

import (
	"math"
	"strconv"
	"strings"
	"text/scanner"

	"github.com/berthml/berth"
)

// condition says of a row whether it passes a filter; value returns what is in a column.
type condition func(value func(column string) any) bool

// parseFilter reads an expression such as col("temperature") > 32 and col("location") == "UK", and
// which columns it looks at.
func parseFilter(text string) (c condition, columns []string, err error) {
	p := &filterParser{}
	p.scan.Init(strings.NewReader(text))
	p.scan.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanFloats | scanner.ScanStrings
	p.scan.Error = func(*scanner.Scanner, string) { p.bad = true }
	p.next()
	c = p.or(0)
	if p.bad || p.token != scanner.EOF {
		return nil, nil, berth.Errorf(berth.Invalid, "filter %s cannot be evaluated on a node: only comparisons such as col(\"x\") > 1 and col(\"y\") == \"a\", joined by and, or and parentheses, can", text)
	}
	return c, p.columns, nil
}

type filterParser struct {
	scan  scanner.Scanner
	token rune
	bad   bool
	// columns are those that are looked at.
	columns []string
}

func (p *filterParser) next() { p.token = p.scan.Scan() }

// take consumes a token with this text.
func (p *filterParser) take(text string) bool {
	if p.token == scanner.EOF || p.scan.TokenText() != text {
		return false
	}
	p.next()
	return true
}

func (p *filterParser) expect(text string) {
	if !p.take(text) {
		p.bad = true
	}
}

func (p *filterParser) or(depth int) condition {
	left := p.and(depth)
	for p.take("or") {
		a, b := left, p.and(depth)
		left = func(v func(string) any) bool { return a(v) || b(v) }
	}
	return left
}

func (p *filterParser) and(depth int) condition {
	left := p.term(depth)
	for p.take("and") {
		a, b := left, p.term(depth)
		left = func(v func(string) any) bool { return a(v) && b(v) }
	}
	return left
}

func (p *filterParser) term(depth int) condition {
	if depth > 100 {
		p.bad = true
	}
	if p.bad {
		return nil
	}
	if p.take("(") {
		c := p.or(depth + 1)
		p.expect(")")
		return c
	}
	return p.comparison()
}

func (p *filterParser) comparison() condition {
	p.expect("col")
	p.expect("(")
	column, ok := p.literal().(string)
	p.expect(")")
	op := p.operator()
	want := p.literal()
	if p.bad || !ok || op == "" || want == nil {
		p.bad = true
		return nil
	}
	p.columns = append(p.columns, column)
	return func(v func(string) any) bool { return compare(v(column), op, want) }
}

func (p *filterParser) operator() string {
	op := p.scan.TokenText()
	if !strings.Contains("=!<>", op) || p.token == scanner.EOF {
		return ""
	}
	p.next()
	if p.take("=") {
		return op + "="
	}
	if op == "=" || op == "!" {
		return ""
	}
	return op
}

// literal is a string or a number.
func (p *filterParser) literal() any {
	sign := 1.0
	if p.take("-") {
		sign = -1
	}
	text := p.scan.TokenText()
	switch p.token {
	case scanner.Int, scanner.Float:
		n, err := strconv.ParseFloat(text, 64)
		p.bad = p.bad || err != nil
		p.next()
		return sign * n
	case scanner.String:
		s, err := strconv.Unquote(text)
		p.bad = p.bad || err != nil || sign < 0
		p.next()
		return s
	}
	p.bad = true
	return nil
}

// compare compares a value with a literal. A value that is no number is neither more nor less than
// one, and not equal to it.
func compare(value any, op string, want any) bool {
	order := 0
	switch want := want.(type) {
	case float64:
		n, ok := number(value)
		if !ok {
			return op == "!="
		}
		switch {
		case n < want:
			order = -1
		case n > want:
			order = 1
		}
	case string:
		s, ok := value.(string)
		if !ok {
			return op == "!="
		}
		order = strings.Compare(s, want)
	}
	switch op {
	case "==":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, !math.IsNaN(v)
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return n, err == nil && !math.IsNaN(n)
	}
	return 0, false
}
