package locate_test

import (
	"testing"

	"github.com/berthml/berth/internal/locate"
)

// TestContentURI: where the files of an asset are is what one property says, spelt as it is: what
// is held and what is run are the same.
func TestContentURI(t *testing.T) {
	for _, c := range []struct {
		collection string
		props      map[string]any
		want       string
	}{
		{"codes", map[string]any{"codeUri": "u"}, "u"},
		{"codes", map[string]any{"CODEURI": "u"}, ""},
		{"codes", map[string]any{"codeUri": 7}, ""},
		{"data", map[string]any{"dataUri": "u", "modelUri": "/v", "codeUri": "/w"}, "u"},
		{"models", map[string]any{"dataUri": "u"}, ""},
		{"environments", map[string]any{"build": map[string]any{"contextUri": "u"}}, "u"},
		{"environments", map[string]any{"build": "u"}, ""},
		{"environments", nil, ""},
		{"components", map[string]any{"codeUri": "u"}, ""},
	} {
		if got := locate.ContentURI(c.collection, c.props); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.collection, c.props, got, c.want)
		}
	}
}
