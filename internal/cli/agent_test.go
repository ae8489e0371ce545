//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/dialout"
)

// TestAgentThatJoinsAnotherServer: the runner host of an agent that joins another server, or is
// another compute, takes tasks whatever the term is there. A new token for the same one changes
// nothing.
func TestAgentThatJoinsAnotherServer(t *testing.T) {
	dir := t.TempDir()
	term := filepath.Join(dir, "host", "term.9")
	if err := os.Mkdir(filepath.Dir(term), 0o700); err != nil {
		t.Fatal(err)
	}
	first := dialout.Join{Server: "https://a:1", Workspace: berth.Workspace{Subscription: "s", Group: "g", Name: "w"}, Compute: "laptop", Token: "one"}
	token, server, compute := first, first, first
	token.Token, server.Server, compute.Compute = "two", "https://b:1", "desktop"
	for _, c := range []struct {
		name  string
		join  dialout.Join
		stays bool
	}{{"joins", first, true}, {"same", token, true}, {"other server", server, false}, {"other compute", compute, false}, {"still", compute, true}} {
		if err := os.WriteFile(term, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(c.join)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "join")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		var a dialout.Agent
		if err := (agentOptions{dir: dir, join: file}).identity(&a); err != nil || a.Join.Token != c.join.Token {
			t.Fatalf("%s: %+v, %v", c.name, a.Join, err)
		}
		if _, err := os.Stat(term); (err == nil) != c.stays {
			t.Errorf("%s: the term: %v", c.name, err)
		}
	}
}
