package track

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// What a clause is about.
type subject int

const (
	attribute subject = iota
	metricOfRun
	paramOfRun
	tagOf
	datasetOf
)

var subjectNames = map[subject]string{attribute: "attribute", metricOfRun: "metric", paramOfRun: "parameter", tagOf: "tag", datasetOf: "dataset"}

// A grammar is what one kind of search may ask about.
type grammar struct {
	entities   map[string]subject
	attributes map[string]bool                            // the searchable ones; true: numbers
	orders     []string                                   // the attributes that can be ordered by
	lists      func(s subject, key string) (string, bool) // whether IN is possible, and what is said when not
	nulls      []subject                                  // of what IS NULL may be asked
	alias      map[string]string
	orderWords string // what is said of an order by something else, where it is not what is said of a filter
}

var datasetKeys = []string{"name", "digest", "context"}

// A clause is one condition; all of a filter's have to hold.
type clause struct {
	of     subject
	key    string
	op     string
	number float64
	text   string
	list   []string        // of IN, each once
	among  map[string]bool // the same
}

var (
	numberOps = []string{"!=", "<", "<=", "=", ">", ">="}
	textOps   = []string{"!=", "=", "ILIKE", "IN", "LIKE", "NOT IN"}
	pairOps   = []string{"!=", "=", "ILIKE", "IS NOT NULL", "IS NULL", "LIKE"}
)

// maxFilter, maxClauses and maxList, of IN, bound a filter; longer ones are nobody's.
const (
	maxFilter  = 1 << 20
	maxClauses = 100
	maxList    = 10_000
)

// parse reads a filter.
func (g *grammar) parse(filter string) ([]clause, error) {
	if len(filter) > maxFilter {
		return nil, invalid("The filter is longer than %d characters", maxFilter)
	}
	t := tokens(filter)
	if len(t) == 0 {
		return nil, nil
	}
	p := filterParser{g: g, t: t}
	var out []clause
	for {
		c, err := p.clause()
		if err != nil {
			return nil, err
		}
		if out = append(out, c); len(out) > maxClauses {
			return nil, invalid("The filter has more than %d comparisons", maxClauses)
		}
		switch next := p.next(); {
		case next.kind == tokenEnd:
			return out, nil
		case next.text == ";" && p.peek().kind != tokenEnd:
			return nil, invalid("Search filter contained multiple expression '%s'. Provide AND-ed expression list.", filter)
		case !next.is("AND"):
			return nil, badClause(next.text)
		}
	}
}

func badClause(text string) error {
	return invalid("Invalid clause(s) in filter string: '%s'", text)
}

type filterParser struct {
	g *grammar
	t []token
}

func (p *filterParser) next() token {
	t := p.peek()
	if len(p.t) > 0 {
		p.t = p.t[1:]
	}
	return t
}

func (p *filterParser) peek() token {
	if len(p.t) == 0 {
		return token{}
	}
	return p.t[0]
}

// clause reads a condition.
func (p *filterParser) clause() (clause, error) {
	var c clause
	name := p.next()
	if name.kind != tokenName {
		return c, badClause(name.text)
	}
	op := p.next()
	if op.kind == tokenEnd {
		return c, badClause(name.text)
	}
	if v := p.peek(); op.kind == tokenOp && (v.is("true") || v.is("false") || v.is("null")) {
		return c, badClause(name.text + " " + op.text + " " + v.text)
	}
	if op.kind == tokenName && !slices.ContainsFunc([]string{"LIKE", "ILIKE", "IN", "NOT", "IS"}, op.is) {
		return c, badClause(name.text + " " + op.text)
	}
	var err error
	if c.of, c.key, err = p.g.identify(name.text, p.g.searchable()); err != nil {
		return c, err
	}
	switch {
	case op.kind == tokenOp:
		c.op = op.text
	case op.is("LIKE"), op.is("ILIKE"), op.is("IN"):
		c.op = strings.ToUpper(op.text)
	case op.is("NOT") && p.peek().is("IN"):
		p.next()
		c.op = "NOT IN"
	case op.is("IS"):
		c.op = "IS NULL"
		if p.peek().is("NOT") {
			p.next()
			c.op = "IS NOT NULL"
		}
		if n := p.next(); !n.is("NULL") {
			return c, badClause(name.text + " " + op.text + " " + n.text)
		}
		return c, p.g.checkNull(c)
	default:
		return c, badClause(op.text)
	}
	if err := p.g.checkOp(c); err != nil {
		return c, err
	}
	if c.op == "IN" || c.op == "NOT IN" {
		return c, p.list(&c)
	}
	return c, p.value(&c)
}

// identify takes a name apart: metrics.acc, tags.`a.b`, start_time.
func (g *grammar) identify(name string, valid []string) (subject, string, error) {
	of, key := attribute, name
	if entity, rest, ok := strings.Cut(name, "."); ok && !strings.HasPrefix(name, "`") || ok && strings.HasPrefix(rest, "`") {
		entity, _ = unquote(entity, "`\"")
		if of, ok = g.entities[entity]; !ok {
			return 0, "", invalid("Invalid entity type '%s'. Valid values are ['metric', 'parameter', 'tag', 'attribute', 'dataset']", beginning(entity))
		}
		key = rest
	}
	key, _ = unquote(key, "`\"'")
	if err := checkLength(subjectNames[of]+" key", maxKey, key); err != nil {
		return 0, "", err
	}
	if a, ok := g.alias[key]; ok && of == attribute {
		key = a
	}
	switch {
	case of == attribute && !slices.Contains(valid, key):
		return 0, "", invalid("Invalid attribute key '%s' specified. Valid keys are '%s'", key, setOf(valid))
	case of == datasetOf && !slices.Contains(datasetKeys, key):
		return 0, "", invalid("Invalid dataset key '%s' specified. Valid keys are '%s'", key, setOf(datasetKeys))
	}
	return of, key, nil
}

func (g *grammar) searchable() []string { return sortedKeys(g.attributes) }

// setOf writes names as a set of Python.
func setOf(names []string) string {
	return "{'" + strings.Join(names, "', '") + "'}"
}

func (g *grammar) numeric(c clause) bool {
	return c.of == metricOfRun || c.of == attribute && g.attributes[c.key]
}

func (g *grammar) checkOp(c clause) error {
	ops := textOps
	switch {
	case g.numeric(c):
		ops = numberOps
	case c.of == tagOf || c.of == paramOfRun:
		ops = pairOps
	}
	if !slices.Contains(ops, c.op) {
		return invalid("Invalid comparator '%s' not one of '%s'", c.op, setOf(ops))
	}
	return nil
}

func (g *grammar) checkNull(c clause) error {
	if !slices.Contains(g.nulls, c.of) {
		return invalid("IS NULL / IS NOT NULL is only supported for tags and params, not for '%s' '%s'", subjectNames[c.of], c.key)
	}
	return nil
}

// value reads what is compared with.
func (p *filterParser) value(c *clause) error {
	v := p.next()
	if v.kind == tokenEnd {
		return badClause(c.key + " " + c.op)
	}
	if p.g.numeric(*c) {
		n, err := strconv.ParseFloat(v.text, 64)
		if v.kind != tokenNumber || err != nil && !math.IsInf(n, 0) {
			if c.of == attribute {
				return invalid("Expected numeric value type for numeric attribute: %s. Found %s", c.key, v.text)
			}
			return invalid("Expected numeric value type for metric. Found %s", v.text)
		}
		c.number = n
		return nil
	}
	text, ok := unquote(v.text, `'"`)
	switch {
	case v.kind == tokenText && ok:
		c.text = text
		if c.op == "LIKE" || c.op == "ILIKE" {
			return checkPattern(text)
		}
		return nil
	case v.kind == tokenName || v.kind == tokenText:
		return invalid("Parameter value is either not quoted or unidentified quote types used for string value %s. Use either single or "+
			"double quotes.", v.text)
	case v.text == "(" && c.of == attribute:
		return invalid("%s", notAList(c.key))
	}
	return invalid("Expected a quoted string value for %s (e.g. 'my-value'). Got value %s", subjectNames[c.of], v.text)
}

func notAList(string) string {
	return "Only the 'run_id' attribute supports comparison with a list of quoted string values."
}

// list reads ('a', 'b').
func (p *filterParser) list(c *clause) error {
	if why, ok := p.g.lists(c.of, c.key); !ok {
		return invalid("%s", why)
	}
	bad := invalid("While parsing a list in the query, expected a non-empty list of string values, but got ill-formed list")
	if p.next().text != "(" {
		return bad
	}
	for {
		v := p.next()
		text, ok := unquote(v.text, `'"`)
		if v.kind != tokenText || !ok {
			if v.kind == tokenNumber || v.kind == tokenName {
				return invalid("While parsing a list in the query, expected string value, punctuation, or whitespace, but got different type "+
					"in list: %s", v.text)
			}
			return bad
		}
		if !c.among[text] {
			if len(c.list) == maxList {
				return invalid("A list in the filter has more than %d values: ask for them in several searches", maxList)
			}
			if c.among == nil {
				c.among = map[string]bool{}
			}
			c.list, c.among[text] = append(c.list, text), true
		}
		switch sep := p.next(); sep.text {
		case ",":
			if p.peek().text == ")" && len(c.list) > 0 { // a trailing comma, as Python writes tuples of one
				p.next()
				return nil
			}
		case ")":
			return nil
		default:
			return bad
		}
	}
}

// matches compares a text, which the thing may lack.
func (c *clause) matches(v string, has bool) bool {
	switch c.op {
	case "IS NULL":
		return !has
	case "IS NOT NULL":
		return has
	}
	if !has {
		return false
	}
	switch c.op {
	case "=":
		return v == c.text
	case "!=":
		return v != c.text
	case "LIKE":
		return like(v, c.text)
	case "ILIKE":
		return like(strings.ToLower(v), strings.ToLower(c.text))
	case "IN":
		return c.among[v]
	case "NOT IN":
		return !c.among[v]
	}
	return false
}

// matchesNumber compares a number. NaN is in no relation, as in the original, where it is stored as
// 0 and a flag.
func (c *clause) matchesNumber(v float64, has bool) bool {
	if !has {
		return false
	}
	switch c.op {
	case "=":
		return v == c.number
	case "!=":
		return v != c.number
	case "<":
		return v < c.number
	case "<=":
		return v <= c.number
	case ">":
		return v > c.number
	case ">=":
		return v >= c.number
	}
	return false
}
