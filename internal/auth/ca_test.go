package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthml/berth/internal/auth"
)

func certs(t *testing.T, dir string, now time.Time, hosts ...string) (*auth.Certs, *x509.Certificate) {
	t.Helper()
	c, err := auth.LoadCerts(dir, hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(c.CA)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c, ca
}

// leaf is what a client that asks for a name is served.
func leaf(t *testing.T, c *auth.Certs, name string) *x509.Certificate {
	t.Helper()
	got, err := c.Serve(&tls.ClientHelloInfo{
		ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		SupportedCurves: []tls.CurveID{tls.CurveP256}, CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.Leaf
}

func trusts(ca, leaf *x509.Certificate, name string, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now})
	return err
}

// TestTheCAVouchesForThisServerOnly: with its key nobody plays another server to those who trust
// it.
func TestTheCAVouchesForThisServerOnly(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	_, ca := certs(t, dir, now, "127.0.0.1", "localhost", "box", "ml.example.org", "203.0.113.7", "*.blob.zone.example")
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if life := ca.NotAfter.Sub(now); life > 2*366*24*time.Hour {
		t.Errorf("it lasts %s", life)
	}
	for name, good := range map[string]bool{
		"box": true, "ml.example.org": true, "st.blob.zone.example": true, "10.1.2.3": true, "203.0.113.7": true, "gpu.internal": true,
		"example.org": false, "login.microsoftonline.com": false, "203.0.113.8": false, "2001:db8::1": false, "notbox": false,
	} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		tmpl := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "x"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
		if ip := net.ParseIP(name); ip != nil {
			tmpl.IPAddresses = []net.IP{ip}
		} else {
			tmpl.DNSNames = []string{name}
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, pair.Leaf, &key.PublicKey, pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		forged, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if err := trusts(ca, forged, name, now); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNamesWithoutAddresses: who asks for a name is served a certificate without addresses, which
// BoringSSL refuses from an authority with constraints; who names nobody, one with all of them.
func TestNamesWithoutAddresses(t *testing.T) {
	c, ca := certs(t, t.TempDir(), time.Now(), "127.0.0.1", "localhost", "ml.example.org", "::1")
	for _, name := range []string{"localhost", "ml.example.org"} {
		if l := leaf(t, c, name); len(l.IPAddresses) != 0 || trusts(ca, l, name, time.Now()) != nil {
			t.Errorf("%s is served a certificate of %v and %v", name, l.DNSNames, l.IPAddresses)
		}
	}
	l := leaf(t, c, "")
	for _, name := range []string{"127.0.0.1", "::1", "localhost"} {
		if err := trusts(ca, l, name, time.Now()); err != nil {
			t.Error(err)
		}
	}
}

// TestTheCAIsRenewed: in time, and so that whoever trusts the last one goes on.
func TestTheCAIsRenewed(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	_, first := certs(t, dir, now, "127.0.0.1", "box")
	_, same := certs(t, dir, now.AddDate(0, 6, 0), "127.0.0.1", "box")
	if !same.Equal(first) {
		t.Error("it was made anew too early")
	}
	later := now.AddDate(1, 3, 0)
	c, second := certs(t, dir, later, "127.0.0.1", "box")
	if second.Equal(first) || !second.NotAfter.After(later.AddDate(1, 11, 0)) {
		t.Errorf("not renewed: %s", second.NotAfter)
	}
	for _, ca := range []*x509.Certificate{first, second} {
		for _, name := range []string{"127.0.0.1", "box"} {
			if err := trusts(ca, leaf(t, c, name), name, later); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// Another name of the server is none of the first one's, but does not spoil those it knew.
	c, third := certs(t, dir, later, "127.0.0.1", "box", "new.example.org")
	for _, tt := range []struct {
		ca   *x509.Certificate
		name string
		good bool
	}{{first, "127.0.0.1", true}, {first, "box", true}, {first, "new.example.org", false}, {third, "new.example.org", true}, {third, "box", true}} {
		if err := trusts(tt.ca, leaf(t, c, tt.name), tt.name, later); (err == nil) != tt.good {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	// One that is over is renewed as well.
	if _, last := certs(t, dir, now.AddDate(30, 0, 0), "box"); !last.NotAfter.After(now.AddDate(31, 0, 0)) {
		t.Error(last.NotAfter)
	}
}

// TestOldCAs: a home whose authority knows no bounds gets one that does, with the same key.
func TestOldCAs(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Berth CA of old"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(20, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"ca.pem": {Type: "CERTIFICATE", Bytes: der}, "ca.key": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	c, ca := certs(t, dir, now, "127.0.0.1", "box")
	if !ca.PermittedDNSDomainsCritical || ca.NotAfter.After(now.AddDate(2, 0, 1)) {
		t.Errorf("%+v", ca)
	}
	for _, by := range []*x509.Certificate{old, ca} {
		if err := trusts(by, leaf(t, c, "box"), "box", now); err != nil {
			t.Error(err)
		}
	}
}
