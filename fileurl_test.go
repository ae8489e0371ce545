package berth_test

import (
	"testing"

	"github.com/berthml/berth"
)

func TestFileURL(t *testing.T) {
	for uri, want := range map[string]string{
		"file:///a/b": "/a/b", "file://localhost/a": "/a", "FILE:///a%20b%23": "/a b#", " file:///a ": "/a", "file:///a%3Fb": "/a?b",
		"file:///a?b": "!", "file:///a#b": "!", "file:///a?": "!", "file:/a": "!", "file:a": "!", "file://host/a": "!", "file://localhosta": "!",
		"file:///a%zz": "!", "file:///a%00": "!", "https://a/b": "", "/a": "", "": "",
	} {
		path, ok, err := berth.FileURL(uri)
		switch {
		case want == "!" && (err == nil || !ok || berth.CodeOf(err) != berth.Invalid):
			t.Errorf("%q: %q, %v, %v", uri, path, ok, err)
		case want != "!" && (err != nil || path != want || ok != (want != "")):
			t.Errorf("%q: %q, %v, %v", uri, path, ok, err)
		}
	}
}
