package data

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/berthml/berth"
)

// Trust makes a transport that trusts ca, PEM which may be empty, besides the system's roots. Those
// are read only when a server has a certificate that ca does not vouch for: it takes longer than
// starting a task does, and most tasks speak to no server but ours.
func Trust(tr *http.Transport, ca string) (http.RoundTripper, error) {
	if ca == "" {
		return tr, nil
	}
	own := x509.NewCertPool()
	if !own.AppendCertsFromPEM([]byte(ca)) {
		return nil, berth.Errorf(berth.Invalid, "the server's CA certificate is not valid PEM")
	}
	return &trusting{plain: tr, ca: ca, roots: own, others: map[string]bool{}}, nil
}

// trusting has a transport for requests that need no roots, one that trusts ca, and one that trusts
// the system's roots too. The last two are made when they are first needed.
type trusting struct {
	plain  *http.Transport
	ca     string
	roots  *x509.CertPool // of ca
	mu     sync.Mutex
	others map[string]bool // servers that ca does not vouch for
	own    *http.Transport
	all    *http.Transport
}

// RoundTrip is [http.RoundTripper.RoundTrip].
func (t *trusting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return t.plain.RoundTrip(r)
	}
	if own := t.ours(r.URL.Host); own != nil {
		first, body := r, (*heldBody)(nil)
		if r.Body != nil && r.Body != http.NoBody {
			body = &heldBody{ReadCloser: r.Body}
			first = r.WithContext(r.Context())
			first.Body = body
		}
		res, err := own.RoundTrip(first)
		_, stranger := errors.AsType[*tls.CertificateVerificationError](err)
		if !body.settle(stranger) {
			return res, err
		}
	}
	return t.everyones(r.URL.Host).RoundTrip(r)
}

// ours is the transport that trusts ca, nil for a server that it does not vouch for.
func (t *trusting) ours(host string) *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.others[host] {
		return nil
	}
	if t.own == nil {
		t.own = t.with(t.roots)
	}
	return t.own
}

// everyones is the transport that trusts the system's roots, for a server that needs it.
func (t *trusting) everyones(host string) *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others[host] = true
	if t.all == nil {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		roots.AppendCertsFromPEM([]byte(t.ca))
		t.all = t.with(roots)
	}
	return t.all
}

// with is a transport that trusts some roots.
func (t *trusting) with(roots *x509.CertPool) *http.Transport {
	tr := t.plain.Clone()
	if tr.TLSClientConfig == nil {
		tr.TLSClientConfig = new(tls.Config)
	}
	tr.TLSClientConfig.RootCAs = roots
	return tr
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *trusting) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tr := range []*http.Transport{t.plain, t.own, t.all} {
		if tr != nil {
			tr.CloseIdleConnections()
		}
	}
}

// heldBody is the body of a request that is made again if nothing of it was sent: a transport that
// gave up before closes it nevertheless.
type heldBody struct {
	io.ReadCloser
	mu      sync.Mutex
	begun   bool // something was read
	decided bool // by settle
	closed  bool // before that
	spared  bool // it is another request's now
}

// settle says whether the request can be made again, with the body as it was, which it is if again
// is set. A nil body is none.
func (b *heldBody) settle(again bool) bool {
	if b == nil {
		return again
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decided, b.spared = true, again && !b.begun
	if b.closed && !b.spared {
		b.ReadCloser.Close()
	}
	return b.spared
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.begun = true
	b.mu.Unlock()
	return b.ReadCloser.Read(p)
}

func (b *heldBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.spared || !b.begun && !b.decided {
		return nil
	}
	return b.ReadCloser.Close()
}
