package cli

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// wide is how many columns of a terminal a text takes.
func wide(text string) int {
	n := 0
	for _, r := range text {
		n += wideRune(r)
	}
	return n
}

func wideRune(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) { // drawn over what is before it, or not at all
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// clip shortens text to n columns.
func clip(text string, n int) string {
	if wide(text) <= n {
		return text
	}
	used := 1 // that of the ellipsis
	for i, r := range text {
		if used += wideRune(r); used > n {
			return text[:i] + "…"
		}
	}
	return text
}
