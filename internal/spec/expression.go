package spec

import (
	"strings"
)

// Expression is one ${{ … }} in a text.
type Expression struct {
	Start, End int      // byte offsets in the text, brackets included
	Path       []string // the dotted path: inputs, data
	Optional   bool     // inside a $[[ … ]] block
}

// Expressions finds the ${{ … }} in text, in order. What does not follow the grammar (blanks inside
// the path, an empty path, no end) is text like any other.
func Expressions(text string) []Expression {
	var found []Expression
	for at := 0; ; {
		i := strings.Index(text[at:], "${{")
		if i < 0 {
			break
		}
		start := at + i
		j := strings.Index(text[start+3:], "}}")
		if j < 0 {
			break
		}
		inner := text[start+3 : start+3+j]
		// An opening without an end before the next opening is text.
		if k := strings.LastIndex(inner, "${{"); k >= 0 {
			at = start + 3 + k
			continue
		}
		at = start + 3 + j + 2
		path := strings.TrimSpace(inner)
		if path == "" || strings.ContainsAny(path, " \t\r\n") {
			continue
		}
		found = append(found, Expression{Start: start, End: at, Path: strings.Split(path, ".")})
	}
	for _, b := range optionalBlocks(text) {
		for i := range found {
			if found[i].Start >= b[0] && found[i].End <= b[1] {
				found[i].Optional = true
			}
		}
	}
	return found
}

// optionalBlocks are the places of the $[[ … ]] blocks in text.
func optionalBlocks(text string) [][2]int {
	var blocks [][2]int
	for at := 0; ; {
		i := strings.Index(text[at:], "$[[")
		if i < 0 {
			return blocks
		}
		start := at + i
		j := strings.Index(text[start+3:], "]]")
		if j < 0 {
			return blocks
		}
		end := start + 3 + j + 2
		blocks = append(blocks, [2]int{start, end})
		at = end
	}
}

// bound says whether text holds an expression.
func bound(text string) bool { return strings.Contains(text, "${{") && len(Expressions(text)) > 0 }

// binding says whether text is one expression and nothing else, and gives its path.
func binding(text string) ([]string, bool) {
	es := Expressions(text)
	if len(es) != 1 || es[0].Start != 0 || es[0].End != len(text) {
		return nil, false
	}
	return es[0].Path, true
}

// find is the place of the nth occurrence of piece in the source of v, or v's own place when the
// source does not have it as it stands (escapes, folding inside).
func (v *value) find(piece string, nth int) *value {
	if v.doc == nil {
		return v
	}
	for i := v.line - 1; i >= 0 && i < len(v.doc.lines); i++ {
		from := 0
		if i == v.line-1 {
			from = min(max(v.col-1, 0), len(v.doc.lines[i]))
		}
		for {
			j := strings.Index(v.doc.lines[i][from:], piece)
			if j < 0 {
				break
			}
			if nth == 0 {
				return &value{doc: v.doc, line: i + 1, col: from + j + 1}
			}
			nth--
			from += j + len(piece)
		}
	}
	return v
}
