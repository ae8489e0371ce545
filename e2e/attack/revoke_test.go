package attack

import (
	"net/http"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestSignaturesEndWithTheirToken: what a client was given with a token does not open anything once
// the token is revoked.
func TestSignaturesEndWithTheirToken(t *testing.T) {
	s := world.Start(t)
	c := client(t, s)
	ann, bob := person(t, s, c, "ann"), person(t, s, c, "bob")
	f, up := bob.store(), bob.pending("c")
	if bob.put(f, "x", "1") != http.StatusCreated || bob.put(up, "y", "1") != http.StatusCreated {
		t.Fatal("bob cannot write")
	}
	admin := &caller{t, s, c, s.Token}
	admin.must(http.StatusNoContent, "DELETE", "/tokens/bob", nil)
	for how, status := range map[string]int{"write": bob.put(f, "x", "2"), "upload": bob.put(up, "y", "2")} {
		if status != http.StatusForbidden {
			t.Errorf("%s: %d", how, status)
		}
	}
	if status, h, _ := bob.send("GET", f.at("x", ""), ""); status != http.StatusForbidden || h.Get("x-ms-error-code") != "AuthenticationFailed" {
		t.Errorf("read: %d %s", status, h.Get("x-ms-error-code"))
	}
	// Another token of the same name is another token.
	again := person(t, s, c, "bob")
	if status := bob.put(f, "x", "2"); status != http.StatusForbidden {
		t.Errorf("with a new token of that name: %d", status)
	}
	if again.put(again.store(), "x", "3") != http.StatusCreated || ann.put(ann.store(), "z", "1") != http.StatusCreated {
		t.Error("others are refused")
	}
}
