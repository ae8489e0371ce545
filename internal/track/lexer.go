package track

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The tokens of filters and orders.
type tokenKind int

const (
	tokenEnd    tokenKind = iota
	tokenName             // a word, with dots and quoted parts: metrics.acc, tags."a b", AND
	tokenText             // in single or double quotes, and not part of a name
	tokenNumber           // 1, -2.5, 1e-3
	tokenOp               // = != < <= > >=
	tokenOther            // parentheses, commas, whatever else
)

type token struct {
	kind tokenKind
	text string // as written
}

// is says whether a token is a word, in any case.
func (t token) is(word string) bool { return t.kind == tokenName && strings.EqualFold(t.text, word) }

// tokens takes a text apart; it never fails.
func tokens(text string) []token {
	var out []token
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if unicode.IsSpace(r) {
			i += size
			continue
		}
		start := i
		kind := tokenOther
		switch {
		case r == '\'' || r == '"':
			kind, i = tokenText, endOfQuote(text, i)
			if r == '"' && i < len(text) && text[i] == '.' { // "tags".x
				kind, i = tokenName, endOfName(text, i)
			}
		case r == '`' || r == '_' || unicode.IsLetter(r):
			kind, i = tokenName, endOfName(text, i)
		case startsNumber(text[i:]):
			kind, i = tokenNumber, endOfNumber(text, i)
		case strings.ContainsRune("=!<>", r):
			kind = tokenOp
			for i < len(text) && strings.IndexByte("=!<>", text[i]) >= 0 {
				i++
			}
		default:
			i += size
		}
		out = append(out, token{kind, text[start:i]})
	}
	return out
}

func startsNumber(s string) bool {
	s = strings.TrimLeft(s, "-+")
	s = strings.TrimPrefix(s, ".")
	return s != "" && s[0] >= '0' && s[0] <= '9'
}

// endOfQuote is where a quoted text ends, its end where the quote is not closed.
func endOfQuote(s string, i int) int {
	for j := i + 1; j < len(s); j++ {
		if s[j] == s[i] {
			return j + 1
		}
	}
	return len(s)
}

// endOfName is where a name ends: letters, digits and dots, and quoted parts after dots.
func endOfName(s string, i int) int {
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '`' || r == '"':
			i = endOfQuote(s, i)
		case r == '_' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r):
			i += size
		default:
			return i
		}
	}
	return i
}

// endOfNumber is where the number ends that begins at start; a sign that follows another number
// begins one.
func endOfNumber(s string, start int) int {
	i := start
	for i < len(s) {
		c := s[i]
		sign := (c == '-' || c == '+') && (i == start || strings.IndexByte("eE", s[i-1]) >= 0 || !isDigit(s[i-1]) && s[i-1] != '.')
		if !isDigit(c) && c != '.' && c != 'e' && c != 'E' && !sign {
			return i
		}
		i++
	}
	return i
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// unquote takes quotes of one of these kinds off a text.
func unquote(s, quotes string) (string, bool) {
	if n := len(s); n >= 2 && s[0] == s[n-1] && strings.IndexByte(quotes, s[0]) >= 0 {
		return s[1 : n-1], true
	}
	return s, false
}
