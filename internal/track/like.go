package track

import (
	"strings"
	"unicode/utf8"
)

// maxHoles bounds the part of a pattern between two % that has _ in it, in bytes: it is compared at
// every place of a text, others are found in one pass.
const maxHoles = 250

func checkPattern(pattern string) error {
	for part := range strings.SplitSeq(pattern, "%") {
		if len(part) > maxHoles && strings.Contains(part, "_") {
			return invalid("The pattern of a LIKE comparison has more than %d characters with _ among them and no %% between", maxHoles)
		}
	}
	return nil
}

// like matches % with anything and _ with any character.
func like(s, pattern string) bool {
	first, rest, open := strings.Cut(pattern, "%")
	n := prefix(s, first)
	if n < 0 || !open {
		return n == len(s)
	}
	s = s[n:]
	for {
		part, more, again := strings.Cut(rest, "%")
		if !again {
			return suffix(s, part)
		}
		from, to := within(s, part)
		if from < 0 {
			return false
		}
		s, rest = s[to:], more
	}
}

// prefix is how much of s a part of a pattern takes at its beginning, -1 when it does not match.
func prefix(s, part string) int {
	i := 0
	for j := 0; j < len(part); {
		if i == len(s) {
			return -1
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		_, psize := utf8.DecodeRuneInString(part[j:])
		if part[j] != '_' && s[i:i+size] != part[j:j+psize] {
			return -1
		}
		i, j = i+size, j+psize
	}
	return i
}

// suffix says whether a part of a pattern is at the end of s.
func suffix(s, part string) bool {
	if !strings.Contains(part, "_") {
		return strings.HasSuffix(s, part)
	}
	at := len(s)
	for range utf8.RuneCountInString(part) {
		if at == 0 {
			return false
		}
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return prefix(s[at:], part) == len(s)-at
}

// within is where a part of a pattern is first in s, -1 when it is nowhere.
func within(s, part string) (from, to int) {
	if !strings.Contains(part, "_") {
		if from = strings.Index(s, part); from < 0 {
			return -1, -1
		}
		return from, from + len(part)
	}
	for from = 0; ; {
		if n := prefix(s[from:], part); n >= 0 {
			return from, from + n
		}
		if from == len(s) {
			return -1, -1
		}
		_, size := utf8.DecodeRuneInString(s[from:])
		from += size
	}
}
