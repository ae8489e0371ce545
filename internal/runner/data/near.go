package data

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Root is the address of the storage that a folder of it is in, empty where rawURL is not that of a
// folder.
func Root(rawURL string) string {
	f, err := parse(rawURL)
	if err != nil {
		return ""
	}
	return f.base[:strings.LastIndexByte(f.base, '/')]
}

// near sends what is for the storage of the server of this machine over its socket, without TLS,
// and everything else as usual. The socket makes its caller the server's owner, so nothing else of
// the server is asked for over it: the addresses are users'.
type near struct {
	http.RoundTripper
	root   url.URL // of the server's storage
	socket *http.Transport
}

func newNear(far http.RoundTripper, base *http.Transport, root url.URL, path string) *near {
	tr := base.Clone()
	tr.Proxy = nil
	tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &near{far, root, tr}
}

// RoundTrip is [http.RoundTripper.RoundTrip].
func (n *near) RoundTrip(r *http.Request) (*http.Response, error) {
	if !n.serves(r.URL) {
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

// serves says whether an address is in the server's storage. Over the socket a server also reads
// files that its user names: that is not for runners.
func (n *near) serves(u *url.URL) bool {
	return u.Scheme == n.root.Scheme && u.User == nil && u.Query().Get("comp") != "file" && u.Host == n.root.Host && strings.HasPrefix(u.Path, n.root.Path+"/") &&
		!slices.ContainsFunc(strings.Split(u.Path, "/"), func(s string) bool { return s == "." || s == ".." })
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (n *near) CloseIdleConnections() {
	n.socket.CloseIdleConnections()
	if c, ok := n.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
