package front

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/berthml/berth"
)

// rest is the escaped path of a request behind the account.
func (h *Handler) rest(r *http.Request) (string, bool) {
	path := r.URL.EscapedPath()
	if h.host != "" && strings.EqualFold(hostname(r.Host), h.host) {
		return path, true
	}
	if len(path) < len(h.prefix) || !strings.EqualFold(path[:len(h.prefix)], h.prefix) {
		return "", false
	}
	rest := path[len(h.prefix):]
	return rest, rest == "" || rest[0] == '/'
}

// parsePath splits the escaped /CONTAINER/NAME. Clients that build addresses from a suffix with a
// slash send more than one slash before the container; in the name every slash counts, escaped or
// not.
func parsePath(escaped string) (container, name string, err error) {
	bad := coded(berth.Invalid, "InvalidUri", "the URL path is malformed")
	first, rest, _ := strings.Cut(strings.TrimLeft(escaped, "/"), "/")
	if container, err = url.PathUnescape(first); err != nil || strings.Contains(container, "/") {
		return "", "", bad
	}
	if name, err = url.PathUnescape(rest); err != nil {
		return "", "", bad
	}
	return container, name, nil
}

func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}
