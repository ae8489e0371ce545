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

// TestCleanURL: what opens a URL is not for people, and everything else is.
func TestCleanURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://host/a/b?sig=s":     "https://host/a/b",
		"https://u:p@host:1/a@b?x":   "https://host:1/a@b",
		"https://u:pa/ss@host/x@y":   "https://y",
		"https://u:pa/ss@host/x":     "https://host/x",
		"HTTP://token@host":          "HTTP://host",
		"s3://id:key@bucket/x":       "s3://bucket/x",
		"abfss://fs@account.dfs/x":   "abfss://fs@account.dfs/x",
		"azureml://datastores/d/p":   "azureml://datastores/d/p",
		"azureml:name:1":             "azureml:name:1",
		"https://host?sig=a/b://c@d": "https://host",
		"https://":                   "https://",
		"":                           "",
	} {
		if got := berth.CleanURL(raw); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}
