package auth_test

import (
	"encoding/base64"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

func TestForgedJWTs(t *testing.T) {
	a, _ := open(t)
	b, _ := open(t)
	now := time.Now()
	for _, x := range []*auth.Authority{a, b} {
		if _, err := x.Create(t.Context(), auth.Token{Name: "ann", Role: auth.Admin}); err != nil {
			t.Fatal(err)
		}
	}
	enc := base64.RawURLEncoding
	body := enc.EncodeToString([]byte(`{"berth_token":"ann","exp":99999999999}`))
	none := enc.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + body + "."
	head := enc.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))
	other, _ := b.AccessToken(auth.Principal{User: "ann", Token: "ann", Role: auth.Admin}, "x", time.Hour, now)
	for _, forged := range []string{none, head + "." + body + ".", head + "." + body, head + "..", head + ".", other, other[:len(other)-3], strings.ToUpper(other)} {
		if _, err := a.Check(t.Context(), forged, now); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%q: %v", forged, err)
		}
	}
}

// TestTokensOfOneName: what was made from a token ends with it, also when another of the same name follows.
func TestTokensOfOneName(t *testing.T) {
	a, _ := open(t)
	ctx, now := t.Context(), time.Now()
	secret, err := a.Create(ctx, auth.Token{Name: "ci", Role: auth.Reader})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Check(ctx, secret, now)
	if err != nil {
		t.Fatal(err)
	}
	jwt, _ := a.AccessToken(p, "x", time.Hour, now)
	if err := a.Revoke(ctx, "ci"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create(ctx, auth.Token{Name: "ci", Role: auth.Admin}); err != nil {
		t.Fatal(err)
	}
	for what, old := range map[string]string{"secret": secret, "jwt": jwt} {
		if p, err := a.Check(ctx, old, now); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("the %s of a revoked token opens as %+v, %v", what, p, err)
		}
	}
}

// TestRevokedElsewhere: servers that share a database learn of each other's revocations.
func TestRevokedElsewhere(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	keys, err := auth.LoadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, b := auth.NewAuthority(keys, db), auth.NewAuthority(keys, db)
	ctx, now := t.Context(), time.Now()
	secret, err := a.Create(ctx, auth.Token{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Check(ctx, secret, now)
	if err != nil {
		t.Fatal(err)
	}
	jwt, _ := b.AccessToken(p, "x", time.Hour, now)
	if _, err := b.Check(ctx, jwt, now); err != nil {
		t.Fatal(err)
	}
	if err := a.Revoke(ctx, "ci"); err != nil {
		t.Fatal(err)
	}
	for _, tok := range []string{secret, jwt} {
		if _, err := b.Check(ctx, tok, now.Add(10*time.Second)); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("ten seconds later: %v", err)
		}
	}
}

// TestRenewal: a derived token is not a way to prolong itself.
func TestRenewal(t *testing.T) {
	a, _ := open(t)
	ctx, now := t.Context(), time.Now()
	secret, err := a.Create(ctx, auth.Token{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Check(ctx, secret, now)
	if err != nil || p.Derived {
		t.Fatal(p, err)
	}
	jwt, exp := a.AccessToken(p, "x", time.Hour, now)
	if p, err = a.Check(ctx, jwt, now); err != nil || !p.Derived || p.Expires.Unix() != exp.Unix() {
		t.Errorf("%+v, %v", p, err)
	}
}
