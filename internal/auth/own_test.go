package auth_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
)

// TestPair: a certificate of another authority is served for its names only, and its files are read
// again when they change; ones that do not fit together leave the last one in place.
func TestPair(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	// An authority of ours stands for another one: it is a certificate with a key too.
	renew := func(when time.Time) {
		t.Helper()
		from := t.TempDir()
		if _, err := auth.LoadCerts(from, []string{"localhost"}, time.Now()); err != nil {
			t.Fatal(err)
		}
		for name, to := range map[string]string{"ca.pem": cert, "ca.key": key} {
			text, err := os.ReadFile(filepath.Join(from, name))
			if err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
			if err == nil {
				err = os.Chtimes(to, when, when)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := auth.LoadPair(cert, key); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("files that are not there: %v", err)
	}
	renew(time.Now().Add(-time.Hour))
	p, err := auth.LoadPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "ml.example.org"} { // the certificate has no name
		if p.Serve(&tls.ClientHelloInfo{ServerName: name}) != nil {
			t.Errorf("it is served for %q", name)
		}
	}
	first := p.Serial()
	renew(time.Now())
	p.LookAgain()
	p.Serve(&tls.ClientHelloInfo{})
	second := p.Serial()
	if second == first {
		t.Error("the new files were not read")
	}
	if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.LookAgain()
	p.Serve(&tls.ClientHelloInfo{})
	if p.Serial() != second {
		t.Error("files that do not fit were taken")
	}
}
