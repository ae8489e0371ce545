package app_test

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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/internal/config"
)

// foreignPair writes a certificate for a name that signs itself, and its key.
func foreignPair(t *testing.T, name string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "another authority"}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// served is the issuer of the certificate that a client which asks for a name is shown.
func served(t *testing.T, address, name string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Issuer.CommonName
}

// TestForeignCertificate: clients that ask for the name of a certificate from elsewhere are shown
// it, and jobs on the machine one of the server's own authority, which they trust.
func TestForeignCertificate(t *testing.T) {
	cfg := config.Default(shortHome(t))
	cfg.TLSCertificate, cfg.TLSKey = foreignPair(t, "ml.example.org")
	s := startAs(t, cfg)
	address := strings.TrimPrefix(s.app.URL, "https://")
	if got := served(t, address, "ml.example.org"); got != "another authority" {
		t.Errorf("ml.example.org: %q", got)
	}
	for _, name := range []string{"localhost", ""} {
		if got := served(t, address, name); !strings.HasPrefix(got, "Berth CA of ") {
			t.Errorf("%q: %q", name, got)
		}
	}
	s.submit("hello", "echo hello")
	if log, status := s.wait("hello"); status != "Completed" || log != "hello\n" {
		t.Errorf("%q, %v", log, status)
	}
}

// TestLoopbackListener: a server that only its owner can reach has a listener for their browser,
// also after a restart at the same address; one that others can reach has none.
func TestLoopbackListener(t *testing.T) {
	home := shortHome(t)
	read := func() (label, port string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(home, "run", "loopback"))
		if err != nil {
			t.Fatal(err)
		}
		label, port, _ = strings.Cut(strings.TrimSpace(string(text)), " ")
		return label, port
	}
	s := start(t, home)
	label, port := read()
	ask := func(host, path string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+net.JoinHostPort("127.0.0.1", port)+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	own := label + ".localhost:" + port
	for what, got := range map[string][2]int{
		"another name": {ask("127.0.0.1:"+port, "/berth/open/x"), 421}, "a link that is none": {ask(own, "/berth/open/x"), 401}, "the API": {ask(own, "/healthz"), 404},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", what, got[0], got[1])
		}
	}
	s.stop()
	if s = start(t, home); label+" "+port != strings.Join(func() []string { a, b := read(); return []string{a, b} }(), " ") {
		t.Error("the address has changed")
	}
	s.stop()
	for _, change := range []func(*config.Config){
		func(c *config.Config) { c.Listen = "0.0.0.0:0" },
		func(c *config.Config) { c.Advertise = "https://ml.example.org" },
	} {
		cfg := config.Default(shortHome(t))
		change(&cfg)
		startAs(t, cfg).stop()
		if _, err := os.Stat(filepath.Join(cfg.Home, "run", "loopback")); err == nil {
			t.Error("a server that others can reach has a listener without TLS")
		}
	}
}
