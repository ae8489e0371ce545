package front_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob/front"
)

func query(t interface{ Fatal(...any) }, text string) url.Values {
	q, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestGrantScope(t *testing.T) {
	s, now := front.NewSigner([]byte("k")), time.Unix(1e9, 0)
	for _, tt := range []struct {
		prefix, name string
		ok           bool
	}{
		{"", "a", true},
		{"", "", true},
		{"a/b", "a/b", true},
		{"a/b", "a/b/c", true},
		{"a/b", "a/bc", false},
		{"a/b", "a", false},
		{"a/b", "a/", false},
		{"a/b", "", false},
		{"a/b/", "a/b", true},
		{"a/b/", "a/b/c", true},
		{"a/b/", "a/bc", false},
		{"a", "A", false},
		{"a/b", "/a/b", false},
		{"a//b", "a/b", false},
	} {
		for _, container := range []string{"box", "*"} {
			q := query(t, s.Sign(front.Grant{Container: container, Prefix: tt.prefix, Perm: "r", Expiry: now.Add(time.Second)}))
			if err := s.Check(q, "box", tt.name, "r", now); (err == nil) != tt.ok {
				t.Errorf("a grant of %q for %q: %v", tt.prefix, tt.name, err)
			}
		}
	}
}

// TestGrantOfOneBlob: it covers no folder of that name, and is told from that of a folder.
func TestGrantOfOneBlob(t *testing.T) {
	s, now := front.NewSigner([]byte("k")), time.Unix(1e9, 0)
	g := front.Grant{Container: "box", Prefix: "a/b", Perm: "b", Expiry: now.Add(time.Second), User: "ann", Holder: "h", One: true, Of: "17 runs r"}
	text := s.Sign(g)
	if got, err := s.Verify(query(t, text), now); err != nil || !got.One || got.Perm != g.Perm || got.Prefix != g.Prefix || got.User != g.User || got.Holder != g.Holder || got.Of != g.Of {
		t.Errorf("%+v %v", got, err)
	}
	for name, ok := range map[string]bool{"a/b": true, "a/b/": false, "a/b/c": false, "a": false, "": false, "a/bc": false} {
		if err := s.Check(query(t, text), "box", name, "b", now); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, perm := range []string{"w", "r", "d", "l", "o"} {
		if err := s.Check(query(t, text), "box", "a/b", perm, now); berth.CodeOf(err) != berth.Denied {
			t.Errorf("%s with a grant of blocks: %v", perm, err)
		}
	}
	if err := (front.Grant{Container: "box", Perm: "w"}).Allows("box", "a", "b"); err != nil {
		t.Errorf("who may write a blob may not write its blocks: %v", err)
	}
	wide := query(t, text)
	wide.Set("sp", "b")
	if _, err := s.Verify(wide, now); berth.CodeOf(err) != berth.Unauthenticated {
		t.Errorf("the grant of one blob becomes that of a folder: %v", err)
	}
}

// What a signature allows is exactly what was granted: no more, no less, not longer.
func TestGrantLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab]{1,2}(/[ab]{1,2}){0,2}`)
		container := rapid.SampledFrom([]string{"box", "cup", "pot"})
		g := front.Grant{
			Container: rapid.SampledFrom([]string{"box", "cup", "*"}).Draw(t, "granted container"),
			Prefix:    rapid.OneOf(rapid.Just(""), name, rapid.String()).Draw(t, "granted prefix"),
			Perm:      rapid.StringMatching(`[rwld]{1,4}`).Draw(t, "granted perm"),
			Expiry:    time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "expiry"), 0),
		}
		s := front.NewSigner(rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key"))
		text := s.Sign(g)
		now := g.Expiry.Add(time.Duration(rapid.Int64Range(-3, 3).Draw(t, "seconds past expiry")) * time.Second)
		c, n, p := container.Draw(t, "container"), name.Draw(t, "name"), rapid.StringMatching(`[rwld]`).Draw(t, "perm")
		prefix := strings.TrimRight(g.Prefix, "/")
		inScope := (g.Container == "*" || g.Container == c) && strings.Contains(g.Perm, p) &&
			(prefix == "" || strings.HasPrefix(n+"/", prefix+"/"))
		want := berth.Code("")
		switch {
		case !now.Before(g.Expiry):
			want = berth.Unauthenticated
		case !inScope:
			want = berth.Denied
		}
		if err := s.Check(query(t, text), c, n, p, now); berth.CodeOf(err) != want {
			t.Fatalf("%v, want %q", err, want)
		}
		if err := front.NewSigner([]byte("another")).Check(query(t, text), c, n, p, now); berth.CodeOf(err) != berth.Unauthenticated {
			t.Fatal("another key's signature passes")
		}
	})
}

// No change of one field of a signed text is taken.
func TestGrantCannotBeChanged(t *testing.T) {
	s, now := front.NewSigner([]byte("k")), time.Unix(1e9, 0)
	text := s.Sign(front.Grant{Container: "box", Prefix: "a", Perm: "r", Expiry: now.Add(time.Minute)})
	rapid.Check(t, func(t *rapid.T) {
		q := query(t, text)
		field := rapid.SampledFrom([]string{"se", "sp", "si", "sig"}).Draw(t, "field")
		old := q.Get(field)
		value := rapid.OneOf(rapid.String(), rapid.Just("rwld"), rapid.Just("2999-01-01T00:00:00Z"), rapid.Just("")).Draw(t, "value")
		if value == old {
			t.Skip("the same")
		}
		q.Set(field, value)
		if _, err := s.Verify(q, now); berth.CodeOf(err) != berth.Unauthenticated {
			t.Fatalf("%s=%q passes: %v", field, value, err)
		}
	})
	if _, err := s.Verify(url.Values{}, now); berth.CodeOf(err) != berth.Unauthenticated {
		t.Error("nothing passes")
	}
}

// Azure's Python client keeps only the fields it knows, and none that is empty, of an address it is
// given.
func TestSignatureSurvivesClients(t *testing.T) {
	known := " sig sp st se sr si sip spr sv ss srt "
	for _, g := range []front.Grant{all, {Container: "box", Prefix: "a b/ü", Perm: "rl", Expiry: all.Expiry}} {
		for k, v := range query(t, front.NewSigner([]byte("k")).Sign(g)) {
			if !strings.Contains(known, " "+k+" ") || v[0] == "" {
				t.Errorf("%s=%s is lost", k, v)
			}
		}
	}
}
