package data_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

func TestTrust(t *testing.T) {
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer plain.Close()
	defer secure.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))

	tr, err := data.Trust(&http.Transport{ForceAttemptHTTP2: true}, ca)
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Transport: tr}
	get := func(url string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	if err := get(plain.URL); err != nil || data.Armed(tr) {
		t.Errorf("%v; the roots were read for a request that needs none: %v", err, data.Armed(tr))
	}
	if err := get(secure.URL); err != nil || data.Armed(tr) {
		t.Errorf("a server with a certificate of the CA: %v; the roots were read: %v", err, data.Armed(tr))
	}
	c.CloseIdleConnections()

	tr, err = data.Trust(new(http.Transport), "")
	if err != nil {
		t.Fatal(err)
	}
	c.Transport = tr
	if err := get(secure.URL); err == nil {
		t.Error("a server whose CA nobody named is trusted")
	}
	if _, err := data.Trust(new(http.Transport), "not PEM"); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("%v", err)
	}
}

// TestTrustOthers: a server with a certificate of the system's roots is trusted too, and gets the
// whole of what is sent; one that nobody vouches for is not.
func TestTrustOthers(t *testing.T) {
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer other.Close()
	const ours = "BERTH_TEST_ROOTS" // a process reads the roots once, so that each case has its own
	if os.Getenv(ours) == "" {
		roots := filepath.Join(t.TempDir(), "roots.pem")
		if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		for word, file := range map[string]string{"known": roots, "unknown": os.DevNull} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTrustOthers$")
			cmd.Env = append(os.Environ(), ours+"="+word, "SSL_CERT_FILE="+file, "SSL_CERT_DIR="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", word, err, out)
			}
		}
		return
	}
	tr, err := data.Trust(new(http.Transport), unrelatedCA(t))
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Transport: tr}
	defer c.CloseIdleConnections()
	for range 2 {
		body := &closing{Reader: strings.NewReader("all of it")} // which cannot be had again
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, other.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if os.Getenv(ours) == "unknown" {
			if err == nil || body.closed.Load() != 1 {
				t.Errorf("trusted: %v; the body was closed %d times", err == nil, body.closed.Load())
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(got) != "all of it" || !data.Armed(tr) || body.closed.Load() == 0 {
			t.Errorf("sent %q, %v; the body was closed %d times", got, err, body.closed.Load())
		}
	}
}

// closing counts how often it is closed.
type closing struct {
	io.Reader
	closed atomic.Int32
}

func (c *closing) Close() error { c.closed.Add(1); return nil }

// unrelatedCA is a certificate that vouches for nobody.
func unrelatedCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, is, is, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
