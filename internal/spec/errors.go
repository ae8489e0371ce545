package spec

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode"

	"github.com/berthml/berth"
)

// Error is one thing wrong with a file, with its place.
type Error struct {
	File      string // as given to Load, or the path of a file it refers to
	Line, Col int    // from 1; 0 when the whole file is meant
	Field     string // dotted path of the field, for example inputs.data.mode
	Msg       string
	Suggest   string // the nearest word that would have been right
}

func (e Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		b.WriteByte(':')
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", e.Line, e.Col)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Msg)
	if e.Suggest != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", e.Suggest)
	}
	return Printable(b.String())
}

// Printable replaces unprintable characters by their escapes, so that names from a file cannot send
// control sequences to a terminal.
func Printable(s string) string {
	hidden := func(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Errors is everything wrong with a file, in the order of its lines.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// As lets berth.CodeOf see an invalid document.
func (e Errors) As(target any) bool {
	if t, ok := target.(**berth.Error); ok {
		*t = &berth.Error{Code: berth.Invalid, Msg: e.Error()}
		return true
	}
	return false
}

// tidy sorts by place and drops repetitions.
func (e Errors) tidy() Errors {
	sort.SliceStable(e, func(i, j int) bool {
		if e[i].File != e[j].File {
			return false
		}
		if e[i].Line != e[j].Line {
			return e[i].Line < e[j].Line
		}
		return e[i].Col < e[j].Col
	})
	var out Errors
	seen := map[Error]bool{}
	for _, one := range e {
		if !seen[one] {
			seen[one] = true
			out = append(out, one)
		}
	}
	return out
}

// nearest is the word closest to got, "" when none is close.
func nearest(got string, words []string) string {
	best, limit := "", 1+len(got)/3
	for _, w := range words {
		if d := distance(strings.ToLower(got), strings.ToLower(w), limit); d < limit {
			best, limit = w, d
		}
	}
	return best
}

// distance is the number of edits between a and b, transpositions counted once; at least limit when
// there are more.
func distance(a, b string, limit int) int {
	if abs(len(a)-len(b)) > limit || len(a) > 64 || len(b) > 64 {
		return limit + 1
	}
	var two, one, row [66]int
	for j := 0; j <= len(b); j++ {
		one[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(one[j]+1, row[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
		two, one = one, row
	}
	return one[len(b)]
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
