package data

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync"

	"github.com/berthml/berth"
)

// Trust makes a transport that trusts ca, PEM which may be empty, besides the system's roots. Those
// are read with the first request that needs them: it takes longer than starting a node's first
// task does, and most tasks on the server's own machine never need them.
func Trust(tr *http.Transport, ca string) (http.RoundTripper, error) {
	if ca == "" {
		return tr, nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(ca)) {
		return nil, berth.Errorf(berth.Invalid, "the server's CA certificate is not valid PEM")
	}
	return &trusting{plain: tr, ca: ca}, nil
}

// trusting has a transport for requests that need no roots, and one for those that do once there
// are any.
type trusting struct {
	plain  *http.Transport
	ca     string
	mu     sync.Mutex
	secure *http.Transport
}

// RoundTrip is [http.RoundTripper.RoundTrip].
func (t *trusting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return t.plain.RoundTrip(r)
	}
	t.mu.Lock()
	if t.secure == nil {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		roots.AppendCertsFromPEM([]byte(t.ca))
		t.secure = t.plain.Clone()
		if t.secure.TLSClientConfig == nil {
			t.secure.TLSClientConfig = new(tls.Config)
		}
		t.secure.TLSClientConfig.RootCAs = roots
	}
	tr := t.secure
	t.mu.Unlock()
	return tr.RoundTrip(r)
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *trusting) CloseIdleConnections() {
	t.plain.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.secure != nil {
		t.secure.CloseIdleConnections()
	}
}
