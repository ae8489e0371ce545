// Package entra obtains what signs requests to Azure's storage for a service principal: a token of
// Microsoft's identity service, and with it a user delegation key of the storage account. The
// server itself sends these requests, so they go to Azure's own hosts and to those that the
// operator allows.
package entra

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/outbound"
	"github.com/berthml/berth/internal/storage"
)

// life is for how long keys are asked for. One is replaced when less than spare of it is left: what
// it signs is good for an hour.
const (
	life  = 2 * time.Hour
	spare = 70 * time.Minute
)

// Client obtains keys and keeps them while they are good. It may be used concurrently.
type Client struct {
	http  *http.Client
	hosts []string

	mu   sync.Mutex
	keys map[storage.Principal]*kept
}

// kept is a key that may have to be obtained first.
type kept struct {
	mu    sync.Mutex
	key   storage.UserKey
	until time.Time
}

// New makes a Client that sends requests to Azure's hosts and to some others, HOST or HOST:PORT.
func New(hosts []string) *Client {
	return &Client{hosts: hosts, keys: map[storage.Principal]*kept{}, http: &http.Client{
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// azure are the ends of the names of Azure's own hosts.
var azure = []string{
	"login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn", "login.chinacloudapi.cn",
	".blob.core.windows.net", ".blob.core.usgovcloudapi.net", ".blob.core.chinacloudapi.cn",
}

// allowed refuses an address that is neither Azure's nor one of the operator's.
func (c *Client) allowed(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return berth.Errorf(berth.Invalid, "%q is not a URL", raw)
	}
	for _, name := range azure {
		if u.Scheme == "https" && u.Port() == "" && (u.Host == name || name[0] == '.' && strings.HasSuffix(u.Host, name)) {
			return nil
		}
	}
	if err := outbound.Check(c.hosts, raw); err != nil {
		return berth.Errorf(berth.CodeOf(err), "%s is not a host of Azure's: %w", u.Host, err)
	}
	return nil
}

// Key is a user delegation key of a principal.
func (c *Client) Key(ctx context.Context, p storage.Principal, now time.Time) (storage.UserKey, error) {
	c.mu.Lock()
	for old, k := range c.keys {
		if k.mu.TryLock() {
			if !k.until.IsZero() && k.until.Before(now) {
				delete(c.keys, old)
			}
			k.mu.Unlock()
		}
	}
	k := c.keys[p]
	if k == nil {
		k = &kept{}
		c.keys[p] = k
	}
	c.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Add(spare).Before(k.until) {
		return k.key, nil
	}
	key, err := c.fetch(ctx, p, now)
	if err != nil {
		c.forget(p, k)
		return storage.UserKey{}, err
	}
	k.key, k.until = key, now.Add(life)
	return key, nil
}

// forget drops what is kept of a principal that has no key.
func (c *Client) forget(p storage.Principal, k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys[p] == k {
		delete(c.keys, p)
	}
}

// fetch obtains a user delegation key.
func (c *Client) fetch(ctx context.Context, p storage.Principal, now time.Time) (storage.UserKey, error) {
	for _, u := range []string{p.Authority, p.URL} {
		if err := c.allowed(u); err != nil {
			return storage.UserKey{}, err
		}
	}
	token, err := c.token(ctx, p, now)
	if err != nil {
		return storage.UserKey{}, err
	}
	return c.delegate(ctx, p, token, now)
}

// token is what the identity service gives the principal.
func (c *Client) token(ctx context.Context, p storage.Principal, now time.Time) (string, error) {
	at := p.Authority + "/" + p.Tenant + "/oauth2/v2.0/token"
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {p.Client}, "scope": {strings.TrimRight(p.Resource, "/") + "/.default"}}
	if p.Secret != "" {
		form.Set("client_secret", p.Secret)
	} else {
		assertion, err := assert(p, at, now)
		if err != nil {
			return "", err
		}
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
	}
	status, body, err := c.post(ctx, at, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, form.Encode())
	if err != nil {
		return "", err
	}
	var answer struct {
		Token       string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(body, &answer)
	switch {
	case status == http.StatusOK && answer.Token != "":
		return answer.Token, nil
	case status/100 == 5 || status == http.StatusTooManyRequests:
		return "", berth.Errorf(berth.Unavailable, "%s answered %d", p.Authority, status)
	}
	why, _, _ := strings.Cut(answer.Description, "\r\n")
	return "", berth.Errorf(berth.Denied, "%s does not accept the service principal %s: %d %s %.200s", p.Authority, p.Client, status, answer.Error, why)
}

// assert is what a principal with a certificate proves itself by.
func assert(p storage.Principal, audience string, now time.Time) (string, error) {
	bad := berth.Errorf(berth.Invalid, "the certificate of service principal %s must be PEM with an RSA private key, and thumbprint its SHA-1 in hex", p.Client)
	thumb, err := hex.DecodeString(strings.ReplaceAll(p.Thumbprint, ":", ""))
	if err != nil || len(p.Certificate) > 1<<16 {
		return "", bad
	}
	var key *rsa.PrivateKey
	for block, rest := pem.Decode([]byte(p.Certificate)); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY":
			parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
			key, _ = parsed.(*rsa.PrivateKey)
		case "RSA PRIVATE KEY":
			key, _ = x509.ParsePKCS1PrivateKey(block.Bytes)
		}
	}
	if key == nil {
		return "", bad
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return "", err
	}
	head, err := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "x5t": base64.RawURLEncoding.EncodeToString(thumb)})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"aud": audience, "iss": p.Client, "sub": p.Client, "jti": hex.EncodeToString(id), "nbf": now.Unix(), "exp": now.Add(10 * time.Minute).Unix(),
	})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), err
}

// delegate is the key that the storage account gives to who has the token.
func (c *Client) delegate(ctx context.Context, p storage.Principal, token string, now time.Time) (key storage.UserKey, err error) {
	const form = "2006-01-02T15:04:05Z"
	body := fmt.Sprintf("<KeyInfo><Start>%s</Start><Expiry>%s</Expiry></KeyInfo>", now.UTC().Add(-5*time.Minute).Format(form), now.UTC().Add(life).Format(form))
	status, answer, err := c.post(ctx, strings.TrimRight(p.URL, "/")+"/?restype=service&comp=userdelegationkey", http.Header{
		"Authorization": {"Bearer " + token}, "X-Ms-Version": {"2022-11-02"}, "Content-Type": {"application/xml"},
	}, body)
	if err != nil {
		return key, err
	}
	switch {
	case status/100 == 5 || status == http.StatusTooManyRequests:
		return key, berth.Errorf(berth.Unavailable, "storage account %s answered %d", p.Account, status)
	case status != http.StatusOK:
		var e struct{ Code string }
		_ = xml.Unmarshal(answer, &e)
		return key, berth.Errorf(berth.Denied, "storage account %s gives the service principal %s no user delegation key: %d %.100s; it needs a role such as Storage Blob Data Contributor", p.Account, p.Client, status, e.Code)
	}
	if err := xml.Unmarshal(answer, &key); err != nil || key.Value == "" {
		return key, berth.Errorf(berth.Unavailable, "storage account %s answered without a user delegation key", p.Account)
	}
	return key, nil
}

// post sends a request and reads the answer.
func (c *Client) post(ctx context.Context, to string, h http.Header, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, berth.Errorf(berth.Invalid, "%q is not a URL", to)
	}
	req.Header = h
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, berth.Errorf(berth.Unavailable, "%s does not answer: %w", req.URL.Host, err)
	}
	defer res.Body.Close()
	if answer, err = io.ReadAll(io.LimitReader(res.Body, 1<<20)); err != nil {
		return 0, nil, berth.Errorf(berth.Unavailable, "reading the answer of %s: %w", req.URL.Host, err)
	}
	return res.StatusCode, answer, nil
}
