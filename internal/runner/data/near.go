package data

import (
	"context"
	"net"
	"net/http"
)

// near sends what is for the server of this machine over its socket, without TLS, and everything else as usual.
type near struct {
	http.RoundTripper
	host   string // of the server's addresses
	socket *http.Transport
}

func newNear(far http.RoundTripper, base *http.Transport, host, path string) *near {
	tr := base.Clone()
	tr.Proxy = nil
	tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &near{far, host, tr}
}

// RoundTrip is [http.RoundTripper.RoundTrip].
func (n *near) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != n.host {
		return n.RoundTripper.RoundTrip(r)
	}
	local := *r
	u := *r.URL
	u.Scheme = "http"
	local.URL = &u
	if local.Host == "" {
		local.Host = r.URL.Host
	}
	return n.socket.RoundTrip(&local)
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (n *near) CloseIdleConnections() {
	n.socket.CloseIdleConnections()
	if c, ok := n.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
