package mltable

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"text/scanner"
	"time"

	"github.com/berthml/berth"
)

// condition says of a row whether it passes a filter; value returns what is in a column.
type condition func(value func(column string) any) bool

// null is a value that is missing: no comparison with it is true.
type null struct{}

// comparison is what a filter compares with what: a bool, int64, float64, string or time.Time.
type comparison struct {
	column string
	want   any
}

// ofTimes says whether the comparison is with a time.
func (c comparison) ofTimes() bool {
	_, ok := c.want.(time.Time)
	return ok
}

// parseFilter reads an expression such as col("temperature") > 32 and col("location") == "UK", and
// returns the comparisons in it as well.
func parseFilter(text string) (c condition, compared []comparison, err error) {
	p := &filterParser{}
	p.scan.Init(strings.NewReader(text))
	p.scan.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanFloats | scanner.ScanStrings
	p.scan.Error = func(*scanner.Scanner, string) { p.bad = true }
	p.next()
	c = p.or(0)
	if p.bad || p.token != scanner.EOF {
		return nil, nil, berth.Errorf(berth.Invalid, "filter %s cannot be evaluated on a node: only comparisons such as col(\"x\") > 1, col(\"y\") == \"a\" and col(\"z\") == True, joined by and, or and parentheses, can", text)
	}
	return c, p.compared, nil
}

type filterParser struct {
	scan     scanner.Scanner
	token    rune
	bad      bool
	compared []comparison
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
	p.compared = append(p.compared, comparison{column, want})
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

// literal is a string, a number, True, False, or a time such as datetime(2024, 12, 31, 23, 59).
func (p *filterParser) literal() any {
	negative := p.take("-")
	text := p.scan.TokenText()
	switch {
	case p.token == scanner.Int || p.token == scanner.Float:
		p.next()
		if negative {
			text = "-" + text
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		n, err := strconv.ParseFloat(text, 64)
		p.bad = p.bad || err != nil
		return n
	case negative:
	case p.token == scanner.String:
		s, err := strconv.Unquote(text)
		p.bad = p.bad || err != nil
		p.next()
		return s
	case p.take("True"):
		return true
	case p.take("False"):
		return false
	case p.take("datetime"):
		return p.time()
	}
	p.bad = true
	return nil
}

// time is what is in parentheses after datetime: year, month, day, and perhaps hour, minute, second
// and microsecond.
func (p *filterParser) time() any {
	var at [7]int
	p.expect("(")
	for i := range at {
		n, ok := p.literal().(int64)
		if !ok || n < 0 || n > 999_999 {
			p.bad = true
			return nil
		}
		at[i] = int(n)
		if p.take(")") {
			t := time.Date(at[0], time.Month(at[1]), at[2], at[3], at[4], at[5], at[6]*1000, time.UTC)
			valid := at[0] > 0 && at[0] < 10_000 && t.Month() == time.Month(at[1]) && t.Day() == at[2] && t.Hour() == at[3] && t.Minute() == at[4] && t.Second() == at[5]
			p.bad = p.bad || i < 2 || !valid
			return t
		}
		p.expect(",")
	}
	p.bad = true
	return nil
}

// compare compares a value with a literal. A value that is not of the literal's type is neither
// more nor less than it, and not equal to it.
func compare(value any, op string, want any) bool {
	if _, missing := value.(null); missing {
		return false
	}
	order, ok := 0, false
	switch want := want.(type) {
	case int64, float64:
		order, ok = compareNumbers(value, want)
	case string:
		var s string
		s, ok = value.(string)
		order = strings.Compare(s, want)
	case bool:
		var b bool
		b, ok = boolean(value)
		if b != want {
			order = 1
			if want {
				order = -1
			}
		}
	case time.Time:
		var t time.Time
		t, ok = value.(time.Time)
		order = t.Compare(want)
	}
	if !ok {
		return op == "!="
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

// compareNumbers compares whole numbers exactly, and others as well as floating point can.
func compareNumbers(value, want any) (order int, ok bool) {
	b, whole := want.(int64)
	if a, is := integer(value); is && whole {
		return cmp.Compare(a, b), true
	}
	y, _ := number(want)
	x, ok := number(value)
	return cmp.Compare(x, y), ok
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case string:
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// boolean is a boolean, or text that is one.
func boolean(v any) (value, ok bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case string:
		yes := strings.EqualFold(strings.TrimSpace(v), "true")
		return yes, yes || strings.EqualFold(strings.TrimSpace(v), "false")
	}
	return false, false
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v)
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return n, err == nil && !math.IsNaN(n)
	}
	return 0, false
}
