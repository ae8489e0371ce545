package dialout

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Check says whether a request asks for what Upgrade does.
func Check(r *http.Request) error {
	switch {
	case r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Connection"), "Upgrade"):
		return berth.Errorf(berth.Invalid, "this address is for agents, which ask to upgrade an HTTP/1.1 connection; a proxy on the way may have taken the request for it away")
	case r.Header.Get("Upgrade") != Protocol:
		return berth.Errorf(berth.Unsupported, "the agent speaks %q and this server %q; use the same version of berth on both sides", r.Header.Get("Upgrade"), Protocol)
	}
	return nil
}

// Upgrade takes the connection of a request that Check has passed and that is known to come from
// the right machine.
func Upgrade(w http.ResponseWriter) (net.Conn, error) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, berth.Errorf(berth.Internal, "the connection cannot be taken over: %w", err)
	}
	_ = c.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol); err != nil {
		_ = c.Close()
		return nil, berth.Errorf(berth.Unavailable, "the agent's connection: %w", err)
	}
	return &hijacked{Conn: c, r: rw.Reader}, nil
}

// hijacked reads first what net/http had read ahead.
type hijacked struct {
	net.Conn
	r *bufio.Reader
}

func (h *hijacked) Read(p []byte) (int, error) {
	if h.r.Buffered() > 0 {
		return h.r.Read(p)
	}
	return h.Conn.Read(p)
}
