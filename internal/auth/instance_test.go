package auth_test

import (
	"context"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
)

// TestInstanceToken: the token of an instance has a user's rights, on the instance, as long as it
// has its node and its owner a token; what is derived from it ends with it.
func TestInstanceToken(t *testing.T) {
	a, _ := open(t)
	now := time.Now()
	if _, err := a.Create(t.Context(), auth.Token{Name: "ann", Role: auth.Admin}); err != nil {
		t.Fatal(err)
	}
	owner, from := "ann", error(nil)
	a.Instances = auth.InstanceCheck{
		Owner: func(_ context.Context, workspace, node string) (string, error) {
			if owner == "" || workspace != "/ws" || node != "ci-box-1" {
				return "", berth.Errorf(berth.Unauthenticated, "stopped")
			}
			return owner, nil
		},
		From: func(context.Context, string) error { return from },
	}
	token := a.Keys.InstanceToken("/ws", "ci-box-1")
	p, err := a.Check(t.Context(), token, now)
	if err != nil || p.User != "ann" || p.Role != auth.User || p.Derived {
		t.Fatalf("%+v %v", p, err)
	}
	access, _ := a.AccessToken(p, "https://management.azure.com", time.Hour, now)
	check := func(want berth.Code, wantHolder berth.Code) {
		t.Helper()
		for _, bearer := range []string{token, access} {
			if _, err := a.Check(t.Context(), bearer, now); berth.CodeOf(err) != want {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if err := a.CheckHolder(t.Context(), p.Holder(), now); berth.CodeOf(err) != wantHolder {
			t.Errorf("holder: %v, want %q", err, wantHolder)
		}
	}
	check("", "")
	from = berth.Errorf(berth.Denied, "elsewhere")
	check(berth.Denied, "") // a signature is for whoever has it
	from, owner = nil, ""
	check(berth.Unauthenticated, berth.Unauthenticated)
	owner = "bob" // who has no token
	check(berth.Unauthenticated, berth.Unauthenticated)
	owner = "ann"
	if err := a.Revoke(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	check(berth.Unauthenticated, berth.Unauthenticated)
	for _, forged := range []string{token + "x", "bi_", "bi_x.y.z", a.Keys.InstanceToken("/other", "ci-box-1"), a.Keys.InstanceToken("/ws", "ci-box-2")} {
		if _, err := a.Check(t.Context(), forged, now); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%s: %v", forged, err)
		}
	}
}
