package outbound_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/outbound"
)

// TestCheck: an address is good where its host is listed, and without TLS on this machine only, or
// where it is listed with its scheme.
func TestCheck(t *testing.T) {
	hosts := []string{"a.example.org", "b.example.org:8443", "http://c.example.org:80", "127.0.0.1", "localhost:1", "::1"}
	for address, want := range map[string]string{
		"https://a.example.org/x":      "",
		"https://a.example.org:9/x":    "",
		"https://b.example.org:8443":   "",
		"http://c.example.org:80/x":    "",
		"http://127.0.0.1:5":           "",
		"http://localhost:1":           "",
		"http://[::1]:5":               "",
		"https://b.example.org":        "add b.example.org to allow",
		"https://c.example.org:80":     "add c.example.org:80 to allow",
		"http://localhost:2":           "add localhost:2 to allow",
		"https://a.example.org.evil":   "to allow",
		"https://evil/a.example.org":   "to allow",
		"http://a.example.org":         "without TLS",
		"https://a.example.org@evil/x": "add evil to allow",
		"http://[":                     "not a URL",
	} {
		err := outbound.Check(hosts, address)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
		if err != nil && want != "not a URL" && berth.CodeOf(err) != berth.Denied {
			t.Errorf("%s: %v", address, berth.CodeOf(err))
		}
	}
}
