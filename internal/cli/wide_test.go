package cli

import "testing"

// TestClip: a text is shortened to columns of a terminal, of which some characters take two and
// some none.
func TestClip(t *testing.T) {
	for _, c := range []struct {
		text string
		wide int
		at5  string
	}{
		{"", 0, ""},
		{"abcde", 5, "abcde"},
		{"abcdef", 6, "abcd…"},
		{"über uns", 8, "über…"},
		{"中文", 4, "中文"},
		{"中文字", 6, "中文…"},
		{"a中文", 5, "a中文"},
		{"a中文字", 7, "a中…"},
		{"e\u0301te\u0301", 3, "e\u0301te\u0301"},
	} {
		if wide(c.text) != c.wide || clip(c.text, 5) != c.at5 || wide(clip(c.text, 5)) > 5 {
			t.Errorf("%q takes %d columns, and is cut to %q", c.text, wide(c.text), clip(c.text, 5))
		}
	}
}
