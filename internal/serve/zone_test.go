package serve_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/serve"
)

// TestZone: every endpoint has one host name, and no other has the same.
func TestZone(t *testing.T) {
	home := berth.Workspace{Subscription: "s", Group: "g", Name: "home"}
	other := berth.Workspace{Subscription: "s", Group: "g", Name: "Other_1"}
	z := serve.Zone{Name: "Score.example.org:8443", Home: home}
	if got := z.URL(home, "Iris"); got != "https://iris.Score.example.org:8443/" {
		t.Error(got)
	}
	seen := map[string]bool{}
	host := func(ws berth.Workspace, name string) string {
		return strings.TrimSuffix(strings.TrimPrefix(z.URL(ws, name), "https://"), "/")
	}
	for _, ws := range []berth.Workspace{home, other} {
		// The second is the name that the first has elsewhere.
		label, _ := z.Label(host(other, "iris"))
		for _, name := range []string{"iris", label, "a--b", strings.Repeat("x", 32)} {
			h := host(ws, name)
			label, ok := z.Label(strings.ToUpper(h))
			got, of := z.Endpoint(label)
			if !ok || got != name || of != serve.Mark(ws.Key()) && (of != "" || ws != home) || seen[h] {
				t.Errorf("%s of %s is at %s: %v %q %q", name, ws.Name, h, ok, got, of)
			}
			seen[h] = true
			if first, _, _ := strings.Cut(h, "."); len(first) > 63 && len(name) <= 32 {
				t.Errorf("%s is too long for DNS", first)
			}
		}
	}
	for _, h := range []string{"", "score.example.org", ".score.example.org", "a.b.score.example.org", "iris.example.org", "irisscore.example.org", "127.0.0.1:8443"} {
		if label, ok := z.Label(h); ok {
			t.Errorf("%q is the endpoint %q", h, label)
		}
	}
	if _, ok := (serve.Zone{}).Label("iris."); ok {
		t.Error("there are host names without a zone")
	}
}
