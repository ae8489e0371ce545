// Package keepalive posts JSON again and again over one kept connection of this machine, and
// answers it. It is plain HTTP/1.1, so that either side can be replaced by any client or server;
// docs/adr/0013-keep-alive.md says why it is not package net/http's, and the benchmark what that is
// worth.
package keepalive

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

// A Client posts to the server at a Unix socket, in the caller's goroutine. Its methods are safe
// for concurrent use; requests are sent one after the other.
type Client struct {
	Path string // of the socket

	mu   sync.Mutex
	conn net.Conn
	r    *bufio.Reader
	buf  []byte
}

// Close closes the connection. A later Post opens another.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

func (c *Client) drop() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// Post sends body to the path and has the answer read. A kept connection that turns out to be dead
// is replaced once. One whose answer read calls Unavailable is not used again.
func (c *Client) Post(ctx context.Context, path string, body []byte, read func(*http.Response) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = append(c.buf[:0], "POST "...)
	c.buf = append(c.buf, path...)
	c.buf = append(c.buf, " HTTP/1.1\r\nHost: berth\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.buf = strconv.AppendInt(c.buf, int64(len(body)), 10)
	c.buf = append(c.buf, "\r\n\r\n"...)
	c.buf = append(c.buf, body...)
	for {
		kept := c.conn != nil
		if !kept {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unix", c.Path)
			if err != nil {
				return berth.Errorf(berth.Unavailable, "reaching the server: %w", err)
			}
			c.conn, c.r = conn, bufio.NewReader(conn)
		}
		res, err := c.exchange(ctx)
		if err != nil {
			c.drop()
			if kept && ctx.Err() == nil {
				continue
			}
			return berth.Errorf(berth.Unavailable, "reaching the server: %w", err)
		}
		err = read(res)
		res.Body.Close() // of the connection, which stays open
		if res.Close || berth.CodeOf(err) == berth.Unavailable {
			c.drop()
		}
		return err
	}
}

func (c *Client) exchange(ctx context.Context) (*http.Response, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(30 * time.Second)
	}
	conn := c.conn
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(c.buf); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.r, nil)
}
