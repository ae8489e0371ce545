package storage

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// proxy stands before a storage server: it counts what is read and may answer in its place.
// Signatures are for its own address, which it passes on.
type proxy struct {
	*httptest.Server
	mu    sync.Mutex
	reads map[string]int                                           // of files, by path
	odd   func(w http.ResponseWriter, r *http.Request) (done bool) // answers in the server's place
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	return startProxyOver(t, target, http.DefaultTransport)
}

// startProxyOver is startProxy with a way to reach the server.
func startProxyOver(t *testing.T, target string, transport http.RoundTripper) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{reads: map[string]int{}}
	forward := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = u.Scheme, u.Host, r.In.Host
	}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		odd := p.odd
		if r.Method == http.MethodGet && !r.URL.Query().Has("list-type") && r.URL.Query().Get("comp") != "list" {
			p.reads[r.URL.Path]++
		}
		p.mu.Unlock()
		if odd == nil || !odd(w, r) {
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// answer has requests answered in the server's place.
func (p *proxy) answer(odd func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.odd = odd
}

// read is how often files were read since the last call, by the ends of their paths.
func (p *proxy) read(name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, times := range p.reads {
		if strings.HasSuffix(path, name) {
			n += times
			delete(p.reads, path)
		}
	}
	return n
}
