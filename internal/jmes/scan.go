package jmes

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is a sort of token.
type kind int

const (
	end      kind = iota
	name          // foo
	quoted        // "foo"
	raw           // 'foo'
	literal       // `foo`
	number        // 1, in [1] and [1:2]
	star          // *
	dot           // .
	flatten       // []
	filter        // [?
	lbracket      // [
	rbracket      // ]
	lparen        // (
	rparen        // )
	lbrace        // {
	rbrace        // }
	comma         // ,
	colon         // :
	pipe          // |
	or            // ||
	and           // &&
	amp           // &
	not           // !
	current       // @
	eq            // ==
	ne            // !=
	lt            // <
	le            // <=
	gt            // >
	ge            // >=
)

type token struct {
	kind  kind
	text  string // as it is written
	value any    // of a name, a number, a string or a literal
	at    int
}

// signs are the tokens without a value, longer ones before their beginnings.
var signs = []struct {
	text string
	kind kind
}{
	{"[?", filter},
	{"[]", flatten},
	{"||", or},
	{"&&", and},
	{"==", eq},
	{"!=", ne},
	{"<=", le},
	{">=", ge},
	{"*", star},
	{".", dot},
	{"[", lbracket},
	{"]", rbracket},
	{"(", lparen},
	{")", rparen},
	{"{", lbrace},
	{"}", rbrace},
	{",", comma},
	{":", colon},
	{"|", pipe},
	{"&", amp},
	{"!", not},
	{"@", current},
	{"<", lt},
	{">", gt},
}

// scan takes a query apart. The last token is end.
func scan(query string) ([]token, error) {
	var out []token
	for i := 0; i < len(query); {
		c := query[i]
		if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			i++
			continue
		}
		t, err := scanOne(query, i)
		if err != nil {
			return nil, err
		}
		t.at = i
		out = append(out, t)
		i += len(t.text)
	}
	return append(out, token{kind: end, at: len(query)}), nil
}

func scanOne(query string, i int) (token, error) {
	c := query[i]
	switch {
	case letter(c):
		j := i + 1
		for j < len(query) && (letter(query[j]) || digit(query[j])) {
			j++
		}
		return token{kind: name, text: query[i:j], value: query[i:j]}, nil
	case digit(c) || c == '-':
		return scanNumber(query, i)
	case c == '"', c == '\'', c == '`':
		return scanText(query, i)
	}
	for _, s := range signs {
		if strings.HasPrefix(query[i:], s.text) {
			return token{kind: s.kind, text: s.text}, nil
		}
	}
	if c == '=' {
		return token{}, &SyntaxError{Query: query, At: i, Msg: "= is not an operator; write =="}
	}
	r, _ := utf8.DecodeRuneInString(query[i:])
	return token{}, &SyntaxError{Query: query, At: i, Msg: "the character " + strings.Trim(strconv.QuoteRune(r), "'") + " has no meaning here"}
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

func scanNumber(query string, i int) (token, error) {
	j := i + 1
	for j < len(query) && digit(query[j]) {
		j++
	}
	if query[i] == '-' && j == i+1 {
		return token{}, &SyntaxError{Query: query, At: i, Msg: "expected a number after -"}
	}
	if j-i > 18 {
		return token{}, &SyntaxError{Query: query, At: i, Msg: "the number is too large"}
	}
	n := 0
	for _, d := range strings.TrimPrefix(query[i:j], "-") {
		n = n*10 + int(d-'0')
	}
	if query[i] == '-' {
		n = -n
	}
	return token{kind: number, text: query[i:j], value: n}, nil
}

// scanText reads what stands in quotes of one of the three kinds.
func scanText(query string, i int) (token, error) {
	q := query[i]
	j := i + 1
	for j < len(query) && query[j] != q {
		if query[j] == '\\' && j+1 < len(query) {
			j++
		}
		j++
	}
	if j >= len(query) {
		return token{}, &SyntaxError{Query: query, At: i, Msg: "the quote " + string(q) + " is not closed"}
	}
	text, inner := query[i:j+1], query[i+1:j]
	switch q {
	case '\'':
		return token{kind: raw, text: text, value: strings.NewReplacer(`\'`, `'`).Replace(inner)}, nil
	case '"':
		var s string
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return token{}, &SyntaxError{Query: query, At: i, Msg: "the name " + text + " is not a JSON string"}
		}
		return token{kind: quoted, text: text, value: s}, nil
	}
	inner = strings.ReplaceAll(inner, "\\`", "`")
	v, err := decode(strings.TrimSpace(inner))
	if err != nil {
		// Text without quotes of its own was once allowed, and people still write `Completed`.
		v, err = decode(`"` + strings.TrimLeft(inner, " \t\r\n") + `"`)
	}
	if err != nil {
		return token{}, &SyntaxError{Query: query, At: i, Msg: "the literal " + text + " is not JSON"}
	}
	return token{kind: literal, text: text, value: v}, nil
}

// decode reads one JSON value and nothing after it; numbers keep their digits.
func decode(text string) (any, error) {
	if !json.Valid([]byte(text)) {
		return nil, json.Unmarshal([]byte(text), new(any))
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}
