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
	other, _ := b.AccessToken(auth.Principal{User: "ann", Token: "ann", Role: auth.Admin}, "berth", time.Hour, now)
	for _, forged := range []string{none, head + "." + body + ".", head + "." + body, head + "..", head + ".", other, other[:len(other)-3], strings.ToUpper(other)} {
		if _, err := a.Check(t.Context(), forged, now); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%q: %v", forged, err)
		}
	}
}

// TestTokensOfOneName: what was made from a token ends with it, also when another of the same name
// follows.
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
	jwt, _ := a.AccessToken(p, "https://management.azure.com/", time.Hour, now)
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
	jwt, _ := b.AccessToken(p, "https://management.azure.com/", time.Hour, now)
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
	jwt, exp := a.AccessToken(p, "https://management.azure.com/", time.Hour, now)
	if p, err = a.Check(ctx, jwt, now); err != nil || !p.Derived || p.Expires.Unix() != exp.Unix() {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestOneSpelling: a token has one spelling; base64 that means the same bytes is another token.
func TestOneSpelling(t *testing.T) {
	a, _ := open(t)
	now := time.Now()
	secret, err := a.Create(t.Context(), auth.Token{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Check(t.Context(), secret, now)
	if err != nil {
		t.Fatal(err)
	}
	jwt, _ := a.AccessToken(p, "https://ml.azure.test", time.Hour, now)
	if _, err := a.Check(t.Context(), jwt, now); err != nil {
		t.Fatal(err)
	}
	task := a.Keys.TaskToken("j.1", now.Add(time.Hour))
	// The last of the 43 characters of a signature has two bits that mean nothing.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, jwt[len(jwt)-1])
	for what, bad := range map[string]string{
		"bits": jwt[:len(jwt)-1] + alphabet[last^1:][:1], "a line break": jwt[:len(jwt)-4] + "\n" + jwt[len(jwt)-4:], "padding": jwt + "=",
		"a line break at the end": jwt + "\r\n", "a task's with a line break": task[:len(task)-3] + "\n" + task[len(task)-3:],
		"no algorithm": "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0" + jwt[strings.IndexByte(jwt, '.'):],
	} {
		if p, err := a.Check(t.Context(), bad, now); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
	pass := a.Keys.Pass("secret", "ticket", now.Add(time.Hour))
	if a.Keys.OpenPass(pass, "ticket", now) != "secret" || a.Keys.OpenPass(pass[:5]+"\n"+pass[5:], "ticket", now) != "" {
		t.Error("a pass has two spellings")
	}
}

// TestAudiences: an access token that was asked for to be shown to somebody else opens nothing
// here.
func TestAudiences(t *testing.T) {
	x, _ := open(t)
	secret, err := x.Create(t.Context(), auth.Token{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	p, err := x.Check(t.Context(), secret, now)
	if err != nil {
		t.Fatal(err)
	}
	for aud, good := range map[string]bool{
		"https://management.azure.com/": true, "https://management.azure.com": true, "https://ml.azure.test": true,
		"https://graph.microsoft.com": false, "": false, "https://management.azure.com.evil.test": false,
		"https://storage.azure.com": false, "https://storage.azure.com/": false,
	} {
		jwt, _ := x.AccessToken(p, aud, time.Hour, now)
		if _, err := x.Check(t.Context(), jwt, now); (err == nil) != good {
			t.Errorf("%q: %v", aud, err)
		}
		// Any host of storage that a client is sent to gets one for all storage.
		_, err := x.CheckStorage(t.Context(), jwt, now)
		if good = good || strings.HasPrefix(aud, "https://storage."); (err == nil) != good {
			t.Errorf("at the blob endpoint, %q: %v", aud, err)
		}
	}
}
