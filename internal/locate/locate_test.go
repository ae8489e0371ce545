package locate_test

import (
	"testing"

	"github.com/berthml/berth/internal/locate"
)

// TestBlob: only what names one container of ours is ours. "*" would be signed as all of them.
func TestBlob(t *testing.T) {
	l := locate.Locator{BaseURL: "https://127.0.0.1:1", Account: "st", Suffix: "berth/"}
	root := l.Root()
	for uri, ok := range map[string]bool{
		root + "/box":                  true,
		root + "/box/a/b%20c":          true,
		root + "/box/a?sig=x":          true,
		locate.CodeHost + "/box-1/a":   true,
		root:                           false,
		root + "/":                     false,
		root + "/*":                    false,
		root + "/*/a":                  false,
		root + "/%2a/a":                false,
		root + "/../a":                 false,
		root + "/Box/a":                false,
		locate.CodeHost + "/*/a":       false,
		root + "x/box/a":               false,
		"https://127.0.0.1:2/st.blob.": false,
	} {
		if c, n, got := l.Blob(uri); got != ok {
			t.Errorf("%s: %q %q %v", uri, c, n, got)
		}
	}
	if c, n, _ := l.Blob(root + "/box/a/b%20c/"); c != "box" || n != "a/b c" {
		t.Errorf("%q %q", c, n)
	}
}
