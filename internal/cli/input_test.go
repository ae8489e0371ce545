package cli

import (
	"testing"
	"time"
)

func TestURIType(t *testing.T) {
	for uri, want := range map[string]string{
		"https://example.com/archive/latest?x=1":        "uri_file",
		"https://example.com/archive/":                  "uri_folder",
		"https://acc.blob.core.windows.net/c/folder":    "uri_folder",
		"https://acc.blob.core.windows.net/c/f.csv":     "uri_file",
		"abfss://c@acc.dfs.core.windows.net/folder":     "uri_folder",
		"azureml://datastores/d/paths/folder/":          "uri_folder",
		"azureml://datastores/d/paths/folder/x.parquet": "uri_file",
		"https://127.0.0.1:1/st.blob.berth/c/folder":    "uri_folder",
	} {
		got, _, err := uriType(t.Context(), nil, uri)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", uri, got, err, want)
		}
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		300 * time.Millisecond: "now", 1900 * time.Millisecond: "1 s ago", 90 * time.Second: "1 min ago", 2 * time.Hour: "2 h ago",
		30 * time.Hour: "30 h ago", 50 * time.Hour: "2 days ago",
	} {
		if got := ago(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

// TestCommandsAreCalledByTheirNames: the tree is made of the one command that the first word names.
func TestCommandsAreCalledByTheirNames(t *testing.T) {
	for _, c := range commands() {
		if got := c.make(newSession()).Name(); got != c.name {
			t.Errorf("the command %s is called %s", c.name, got)
		}
	}
}
