package runner

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// localHome posts to a server's unix socket over one kept connection, in the caller's goroutine: reports of short tasks
// are frequent enough for the cost of a general client to show.
type localHome struct {
	path string

	mu   sync.Mutex
	conn net.Conn
	r    *bufio.Reader
	buf  []byte
}

func (h *localHome) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop()
}

func (h *localHome) drop() {
	if h.conn != nil {
		h.conn.Close()
		h.conn = nil
	}
}

// post is HTTPHome.post for JSON. A kept connection that turns out to be dead is replaced once.
func (h *localHome) post(ctx context.Context, path string, body []byte, out any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf = append(h.buf[:0], "POST "...)
	h.buf = append(h.buf, path...)
	h.buf = append(h.buf, " HTTP/1.1\r\nHost: berth\r\nContent-Type: application/json\r\nContent-Length: "...)
	h.buf = strconv.AppendInt(h.buf, int64(len(body)), 10)
	h.buf = append(h.buf, "\r\n\r\n"...)
	h.buf = append(h.buf, body...)
	for {
		kept := h.conn != nil
		if !kept {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", h.path)
			if err != nil {
				return berth.Errorf(berth.Unavailable, "reaching the server: %w", err)
			}
			h.conn, h.r = c, bufio.NewReader(c)
		}
		res, err := h.exchange(ctx)
		if err != nil {
			h.drop()
			if kept && ctx.Err() == nil {
				continue
			}
			return berth.Errorf(berth.Unavailable, "reaching the server: %w", err)
		}
		err = read(res, out)
		if res.Close || berth.CodeOf(err) == berth.Unavailable {
			h.drop()
		}
		return err
	}
}

func (h *localHome) exchange(ctx context.Context) (*http.Response, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(30 * time.Second)
	}
	c := h.conn
	_ = c.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(h.buf); err != nil {
		return nil, err
	}
	return http.ReadResponse(h.r, nil)
}
