// Package jmes is JMESPath, the language of --query: the grammar and functions of the specification
// at jmespath.org.
//
// Values are what encoding/json makes of JSON: maps, lists, text, booleans, nil, and numbers as
// json.Number or float64. A multi-select hash makes an Object, which remembers the order its keys
// were written in.
package jmes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Expr is a query that was understood. It may be used by several goroutines.
type Expr struct{ root node }

// SyntaxError is a query that was not, and where.
type SyntaxError struct {
	Query string
	At    int // offset in bytes
	Msg   string
	// Call says that the grammar was right: a function is not known, or takes another number of
	// arguments. The specification has these errors found when the query is evaluated.
	Call bool
}

func (e *SyntaxError) Error() string {
	query := e.Query
	if len(query) > maxShown {
		query = strings.ToValidUTF8(query[:maxShown], "") + "…"
	}
	return fmt.Sprintf("%s, at character %d of %q", e.Msg, len([]rune(e.Query[:e.At]))+1, query)
}

// maxShown is how much of a query a message repeats.
const maxShown = 200

// Parse reads a query. The error is a *SyntaxError.
func Parse(query string) (*Expr, error) {
	tokens, err := scan(query)
	if err != nil {
		return nil, err
	}
	p := &parser{query: query, tokens: tokens}
	n, err := p.expression(0)
	if err == nil && p.now().kind != end {
		err = p.unexpected("expected the end of the query")
	}
	if err != nil {
		return nil, err
	}
	return &Expr{n}, nil
}

// Search is what the query finds in v. What is not there is nil; an error is a function that was
// given the wrong thing.
func (e *Expr) Search(v any) (any, error) {
	out, err := e.root.eval(v)
	if err == nil {
		err = bounded(out, max(minSize, maxGrow*(math.MaxInt32-weigh(v, math.MaxInt32))))
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Object is an object whose keys have an order.
type Object struct {
	Keys   []string
	Values map[string]any
}

func (o *Object) set(key string, v any) {
	if _, ok := o.Values[key]; !ok {
		o.Keys = append(o.Keys, key)
	}
	o.Values[key] = v
}

// MarshalJSON writes the members in their order.
func (o *Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, k := range o.Keys {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(k); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(o.Values[k]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// members is an object's keys, sorted or in their own order, and a way to its values; ok is false
// for anything else.
func members(v any) (keys []string, get map[string]any, ok bool) {
	switch x := v.(type) {
	case map[string]any:
		return sortedKeys(x), x, true
	case *Object:
		return x.Keys, x.Values, true
	}
	return nil, nil, false
}
