package storage

import (
	"net/url"
	"testing"
	"time"

	"github.com/berthml/berth"
)

// The signature is the one that Azure's own library makes of the same account, key and time.
func TestAccountSAS(t *testing.T) {
	key := "YSBrZXkgb2YgdGhpcnR5LXR3byBieXRlcywgb3Igc28="
	got, err := AccountSAS("far", key, "https", time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(got)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"se": "2030-01-02T03:04:05Z", "sp": "rwdlcu", "sv": "2022-11-02", "sig": "tXfZAlPzCq8mCYVceKlVy7BthI7vAB9TX6wFt+kS6+U="} {
		if have := u.Query().Get(k); have != want {
			t.Errorf("%s is %q, want %q", k, have, want)
		}
	}
	if _, err := AccountSAS("far", "no key", "https", time.Now()); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("what is no key gives %v", err)
	}
}
