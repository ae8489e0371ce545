package auth_test

import (
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
)

// TestHolders: what was made for a token ends with it, what was made for a user with the user's
// last.
func TestHolders(t *testing.T) {
	a, _ := open(t)
	now := time.Now()
	check := func(holder string, good bool) {
		t.Helper()
		if err := a.CheckHolder(t.Context(), holder, now); (err == nil) != good || err != nil && berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%q: %v", holder, err)
		}
	}
	var holders []string
	for _, tok := range []auth.Token{{Name: "one", User: "ann"}, {Name: "two", User: "ann", Expires: now.Add(-time.Hour)}} {
		secret, err := a.Create(t.Context(), tok)
		if err != nil {
			t.Fatal(err)
		}
		p, err := a.Check(t.Context(), secret, now.Add(-2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		holders = append(holders, p.Holder())
	}
	check("", true) // the local socket's owner
	check("other thing", false)
	check(holders[0], true)
	check(holders[1], false) // expired
	check(auth.UserHolder("ann"), true)
	check(auth.UserHolder("bob"), false)
	for i, name := range []string{"one", "two"} {
		if err := a.Revoke(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		check(holders[0], false)
		check(auth.UserHolder("ann"), i == 0)
	}
}

// TestCheckWriter: tokens that only read, or have expired, do not let others act for their user.
func TestCheckWriter(t *testing.T) {
	a, _ := open(t)
	now := time.Now()
	for _, tok := range []auth.Token{
		{Name: "reads", User: "rita", Role: auth.Reader},
		{Name: "old", User: "olaf", Role: auth.User, Expires: now.Add(-time.Minute)},
		{Name: "writes", User: "will", Role: auth.User, Expires: now.Add(time.Minute)},
	} {
		if _, err := a.Create(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
	}
	for user, good := range map[string]bool{"rita": false, "olaf": false, "nobody": false, "will": true} {
		if err := a.CheckWriter(t.Context(), user, now); (err == nil) != good || err != nil && berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%s: %v", user, err)
		}
	}
}
