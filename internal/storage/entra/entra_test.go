package entra_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/storage"
	"github.com/berthml/berth/internal/storage/entra"
)

// world is an identity service and a storage account, as far as keys go.
type world struct {
	*httptest.Server
	tokens, keys atomic.Int32
	check        func(form url.Values) string // what is wrong with a request for a token
	status       atomic.Int32                 // what the storage account answers; 0 gives out keys
}

func start(t *testing.T) *world {
	w := &world{check: func(f url.Values) string {
		if f.Get("client_secret") != "s3cret" {
			return "invalid_client"
		}
		return ""
	}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/tenant/oauth2/v2.0/token":
			w.tokens.Add(1)
			if err := r.ParseForm(); err != nil || r.Form.Get("grant_type") != "client_credentials" || r.Form.Get("scope") != "https://storage.azure.com/.default" {
				t.Errorf("asked for a token with %v", r.Form)
			}
			if wrong := w.check(r.Form); wrong != "" {
				rw.WriteHeader(http.StatusUnauthorized)
				fmt.Fprintf(rw, `{"error": %q, "error_description": "AADSTS7000215: Invalid client secret.\r\nTrace ID: x"}`, wrong)
				return
			}
			fmt.Fprint(rw, `{"token_type": "Bearer", "expires_in": 3599, "access_token": "the-token"}`)
		case "/acct/":
			w.keys.Add(1)
			if r.Header.Get("Authorization") != "Bearer the-token" || r.URL.Query().Get("comp") != "userdelegationkey" {
				t.Errorf("asked for a key with %v %s", r.Header, r.URL)
			}
			if s := w.status.Load(); s != 0 {
				rw.WriteHeader(int(s))
				fmt.Fprint(rw, "<Error><Code>AuthorizationPermissionMismatch</Code></Error>")
				return
			}
			fmt.Fprint(rw, "<UserDelegationKey><SignedOid>o</SignedOid><SignedTid>t</SignedTid><Value>a2V5</Value></UserDelegationKey>")
		default:
			t.Errorf("asked for %s", r.URL)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *world) principal() storage.Principal {
	return storage.Principal{Authority: w.URL, Tenant: "tenant", Client: "app", Secret: "s3cret", Resource: "https://storage.azure.com/", Account: "acct", URL: w.URL + "/acct/"}
}

func (w *world) host() string { return strings.TrimPrefix(w.URL, "http://") }

// TestKey: a key is obtained once for as long as it is good, and anew for other credentials.
func TestKey(t *testing.T) {
	w := start(t)
	c, now := entra.New([]string{w.host()}), time.Now()
	for _, later := range []time.Duration{0, 30 * time.Minute, 49 * time.Minute, 51 * time.Minute} {
		if key, err := c.Key(t.Context(), w.principal(), now.Add(later)); err != nil || key.Value != "a2V5" || key.ObjectID != "o" {
			t.Fatalf("%+v, %v", key, err)
		}
	}
	if w.tokens.Load() != 2 || w.keys.Load() != 2 {
		t.Errorf("%d tokens, %d keys", w.tokens.Load(), w.keys.Load())
	}
	wrong := w.principal()
	wrong.Secret = "another"
	_, err := c.Key(t.Context(), wrong, now)
	if berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "AADSTS7000215") || strings.Contains(err.Error(), "another") {
		t.Errorf("with a wrong secret: %v", err)
	}
}

// TestCertificate: a principal with a certificate proves itself by a signature.
func TestCertificate(t *testing.T) {
	w := start(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := w.principal()
	p.Secret, p.Thumbprint = "", "AB:CD"
	p.Certificate = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	w.check = func(f url.Values) string {
		parts := strings.Split(f.Get("client_assertion"), ".")
		if len(parts) != 3 || f.Has("client_secret") {
			return "no assertion"
		}
		sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
		sig, err := base64.RawURLEncoding.DecodeString(parts[2])
		if err != nil || rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], sig) != nil {
			return "bad signature"
		}
		var claims struct{ Aud, Iss, Sub string }
		raw, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Aud != w.URL+"/tenant/oauth2/v2.0/token" || claims.Iss != "app" || claims.Sub != "app" {
			return "bad claims"
		}
		return ""
	}
	c := entra.New([]string{w.host()})
	if _, err := c.Key(t.Context(), p, time.Now()); err != nil {
		t.Error(err)
	}
	p.Certificate = "nothing"
	if _, err := c.Key(t.Context(), p, time.Now()); berth.CodeOf(err) != berth.Invalid {
		t.Error(err)
	}
}

// TestRefused: the server asks nobody but Azure and those whom the operator named, and says what
// the storage account answers.
func TestRefused(t *testing.T) {
	w := start(t)
	for name, change := range map[string]func(p *storage.Principal){
		"authority": func(p *storage.Principal) { p.URL = "https://acct.blob.core.windows.net/" },
		"account":   func(p *storage.Principal) { p.Authority = "https://login.microsoftonline.com" },
		"lookalike": func(p *storage.Principal) {
			p.Authority, p.URL = "https://login.microsoftonline.com.example.org", "https://evilblob.core.windows.net.example.org/"
		},
		"port": func(p *storage.Principal) { p.Authority = "https://login.microsoftonline.com:8443" },
	} {
		p := w.principal()
		change(&p)
		if _, err := entra.New(nil).Key(t.Context(), p, time.Now()); berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "allow: hosts:") {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := w.principal()
	plain.Authority = "http://login.example.org"
	if _, err := entra.New([]string{"login.example.org", w.host()}).Key(t.Context(), plain, time.Now()); err == nil || !strings.Contains(err.Error(), "without TLS") {
		t.Errorf("over http: %v", err)
	}
	if w.tokens.Load() != 0 {
		t.Error("somebody was asked")
	}
	w.status.Store(http.StatusForbidden)
	c := entra.New([]string{w.host()})
	if _, err := c.Key(t.Context(), w.principal(), time.Now()); berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "AuthorizationPermissionMismatch") {
		t.Error(err)
	}
	w.status.Store(http.StatusServiceUnavailable)
	if _, err := c.Key(t.Context(), w.principal(), time.Now()); berth.CodeOf(err) != berth.Unavailable {
		t.Error(err)
	}
}
