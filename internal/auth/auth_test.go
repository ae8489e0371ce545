package auth_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

func open(t *testing.T) (*auth.Authority, string) {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "db"), store.Options{NoSync: true, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	keys, err := auth.LoadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	return auth.NewAuthority(keys, db), dir
}

func TestFilesArePrivate(t *testing.T) {
	a, dir := open(t)
	first, err := a.AdminToken(t.Context(), dir, "ann")
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.AdminToken(t.Context(), dir, "ann")
	if err != nil || again != first {
		t.Errorf("the administrator's token changed: %v", err)
	}
	if _, err := auth.LoadCerts(filepath.Join(dir, "tls"), []string{"localhost"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"secret.key", "admin.token", "tls/ca.key"} {
		info, err := os.Stat(filepath.Join(dir, f))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "secret.key"), []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.LoadKeys(dir); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a damaged key: %v", err)
	}
}

func TestKeysAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	tokens := make([]string, 8)
	for i := range tokens {
		wg.Go(func() {
			k, err := auth.LoadKeys(dir)
			if err != nil {
				t.Error(err)
				return
			}
			tokens[i] = k.TaskToken("t", time.Unix(1<<40, 0))
		})
	}
	wg.Wait()
	for _, x := range tokens {
		if x != tokens[0] {
			t.Fatal("two starts made two keys")
		}
	}
}

func TestSeal(t *testing.T) {
	a, _ := open(t)
	s := a.Keys.Seal([]byte("hush"), "here")
	if strings.Contains(s, "hush") || s == a.Keys.Seal([]byte("hush"), "here") {
		t.Error("sealing shows or repeats the secret")
	}
	if b, err := a.Keys.Open(s, "here"); err != nil || string(b) != "hush" {
		t.Errorf("%q, %v", b, err)
	}
	for _, bad := range [][2]string{{s, "there"}, {s[:10], "here"}, {"!", "here"}, {"", "here"}} {
		if _, err := a.Keys.Open(bad[0], bad[1]); err == nil {
			t.Errorf("%v was opened", bad)
		}
	}
}

func TestTaskTokens(t *testing.T) {
	a, _ := open(t)
	now := time.Now()
	tok := a.Keys.TaskToken("job.1", now.Add(time.Hour))
	if id, err := a.Keys.CheckTask(tok, now); err != nil || id != "job.1" {
		t.Errorf("%s, %v", id, err)
	}
	if _, err := a.Keys.CheckTask(tok, now.Add(2*time.Hour)); berth.CodeOf(err) != berth.Unauthenticated {
		t.Errorf("an old token: %v", err)
	}
	other := a.Keys.TaskToken("job.2", now.Add(time.Hour))
	head, _, _ := strings.Cut(other, ".")
	_, tail, _ := strings.Cut(tok, ".")
	for _, forged := range []string{head + "." + tail, tok + "x", tok[:len(tok)-1], "bt_", "bt_a.b.c", ""} {
		if _, err := a.Keys.CheckTask(forged, now); err == nil {
			t.Errorf("%q was accepted", forged)
		}
	}
	p, err := a.Check(t.Context(), tok, now)
	if err != nil || p.Task != "job.1" || p.CanWrite() || p.Role != "" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestExpiryAndRoles(t *testing.T) {
	a, _ := open(t)
	ctx, now := context.Background(), time.Now()
	secret, err := a.Create(ctx, auth.Token{Name: "short", Role: auth.Reader, Expires: now.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Check(ctx, secret, now)
	if err != nil || p.CanWrite() || p.User != "short" {
		t.Errorf("%+v, %v", p, err)
	}
	jwt, exp := a.AccessToken(p, "https://ml.azure.test", time.Hour, now)
	if _, err := a.Check(ctx, jwt, now); err != nil || !exp.After(now) {
		t.Error(err)
	}
	for _, tok := range []string{secret, jwt} {
		if _, err := a.Check(ctx, tok, now.Add(2*time.Minute)); berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("after its expiry: %v", err)
		}
	}
	if err := a.Revoke(ctx, "admin"); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("revoking the administrator: %v", err)
	}
	if err := a.Revoke(ctx, "nobody"); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("revoking nobody: %v", err)
	}
}

// TestCertificates: a client that trusts the CA reaches the server under every name it was made
// for, and under no other.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	c, err := auth.LoadCerts(dir, []string{"127.0.0.1", "localhost", "*.blob.zone.test"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	again, err := auth.LoadCerts(dir, []string{"127.0.0.1"}, time.Now())
	if err != nil || string(again.CA) != string(c.CA) {
		t.Errorf("the CA changed: %v", err)
	}
	bundle, err := os.ReadFile(c.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle holds no certificate")
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: c.Serve})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				conn.(*tls.Conn).Handshake()
				conn.Close()
			}()
		}
	}()
	for name, ok := range map[string]bool{"127.0.0.1": true, "localhost": true, "st.blob.zone.test": true, "other.test": false} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		err = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: name}).Handshake()
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	}
	// A first start that was killed between its two files is made good by the next.
	half := t.TempDir()
	if err := os.WriteFile(filepath.Join(half, "ca.key"), []byte("left over"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.LoadCerts(half, []string{"localhost"}, time.Now()); err != nil {
		t.Errorf("after a killed first start: %v", err)
	}
}

// TestAdminTokenStays: names are the same in every case, and so is the one that cannot be revoked.
func TestAdminTokenStays(t *testing.T) {
	a, _ := open(t)
	secret, err := a.AdminToken(t.Context(), t.TempDir(), "root")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"admin", "Admin", "ADMIN"} {
		if err := a.Revoke(t.Context(), name); berth.CodeOf(err) != berth.Conflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Check(t.Context(), secret, time.Now()); err != nil {
		t.Error(err)
	}
}

// TestUserNames: a user's name is part of signatures and of lines in logs.
func TestUserNames(t *testing.T) {
	a, _ := open(t)
	for _, user := range []string{"a\x00b", "a\nb", strings.Repeat("x", 300)} {
		if _, err := a.Create(t.Context(), auth.Token{Name: "t", User: user}); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%.20q: %v", user, err)
		}
	}
	if _, err := a.Create(t.Context(), auth.Token{Name: "t", User: "Ann Müller <ann@example.org>"}); err != nil {
		t.Error(err)
	}
}
