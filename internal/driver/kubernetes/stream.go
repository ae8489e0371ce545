package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// Streams of a command.
const (
	streamIn = iota
	streamOut
	streamErr
	streamEnd // how it ended: a Status
)

// chunk is how much is sent in one message.
const chunk = 32 << 10

// exec runs a command in a container of a pod, in which stdin has to end by itself: the protocol
// cannot say that it has. What it writes to its standard error is in the error.
func (c *client) exec(ctx context.Context, pod, container string, command []string, stdin io.Reader, stdout io.Writer) error {
	s, err := c.begin(ctx, pod, container, command, stdin != nil)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	if stdin != nil {
		go s.copyIn(stdin)
	}
	var said bytes.Buffer
	for {
		stream, b, err := s.receive()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return berth.Errorf(berth.Unavailable, "the connection to pod %s was cut: %w", pod, err)
		}
		switch stream {
		case streamOut:
			if _, err := stdout.Write(b); err != nil {
				return err
			}
		case streamErr:
			said.Write(b[:min(len(b), max(0, 4<<10-said.Len()))])
		case streamEnd:
			return endOf(b, said.String())
		}
	}
}

// begin starts a command.
func (c *client) begin(ctx context.Context, pod, container string, command []string, stdin bool) (*socket, error) {
	query := url.Values{"container": {container}, "command": command, "stdout": {"true"}, "stderr": {"true"}}
	if stdin {
		query.Set("stdin", "true")
	}
	return c.upgrade(ctx, c.in("", "pods", pod)+"/exec", query)
}

func (s *socket) copyIn(r io.Reader) {
	b := make([]byte, chunk)
	for {
		n, err := r.Read(b)
		if n > 0 && s.send(streamIn, b[:n]) != nil || err != nil {
			return
		}
	}
}

// exitError is how a command ended that did not succeed.
type exitError struct {
	code int
	said string
}

func (e *exitError) Error() string {
	return "exit code " + strconv.Itoa(e.code) + ": " + e.said
}

// endOf is the error of a command that ended with a status.
func endOf(status []byte, said string) error {
	var s struct {
		Status, Message string
		Details         struct {
			Causes []struct{ Reason, Message string }
		}
	}
	if err := json.Unmarshal(status, &s); err != nil {
		return berth.Errorf(berth.Unavailable, "the cluster does not say how the command ended: %w", err)
	}
	if s.Status == "Success" {
		return nil
	}
	for _, x := range s.Details.Causes {
		if code, err := strconv.Atoi(x.Message); err == nil && x.Reason == "ExitCode" {
			return &exitError{code, said}
		}
	}
	return berth.Errorf(berth.Unavailable, "the command could not be run: %s", s.Message)
}

// conn is a WebSocket as a connection: what is written goes to the first stream.
type conn struct {
	*socket
	// take makes of a message of the cluster what is read from the connection.
	take func(stream byte, b []byte) ([]byte, error)
	rest []byte

	mu    sync.Mutex
	timer *time.Timer // closes it at its deadline
}

func (c *conn) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		stream, got, err := c.receive()
		if err == nil {
			c.rest, err = c.take(stream, got)
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *conn) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), chunk)]
		if err := c.send(0, part); err != nil {
			return n, err
		}
		n, b = n+len(part), b[len(part):]
	}
	return n, nil
}

type addr struct{}

func (addr) Network() string { return "kubernetes" }
func (addr) String() string  { return "pod" }

func (c *conn) LocalAddr() net.Addr  { return addr{} }
func (c *conn) RemoteAddr() net.Addr { return addr{} }

// SetDeadline closes the connection when t has come; the zero time cancels that. There is one
// deadline for both directions.
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if !t.IsZero() {
		c.timer = time.AfterFunc(time.Until(t), func() { c.conn.Close() })
	}
	return nil
}

// SetReadDeadline is SetDeadline.
func (c *conn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline does nothing: a connection that takes nothing is closed by its heartbeats.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// attend starts a command and returns its standard input and output as a connection.
func (c *client) attend(ctx context.Context, pod, container string, command []string) (net.Conn, error) {
	s, err := c.begin(ctx, pod, container, command, true)
	if err != nil {
		return nil, err
	}
	var said bytes.Buffer
	return &conn{socket: s, take: func(stream byte, b []byte) ([]byte, error) {
		switch stream {
		case streamOut:
			return b, nil
		case streamErr:
			said.Write(b[:min(len(b), max(0, 4<<10-said.Len()))])
		case streamEnd:
			if err := endOf(b, said.String()); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		return nil, nil
	}}, nil
}

// forward connects to a port of a pod through the API server.
func (c *client) forward(ctx context.Context, pod string, port int) (net.Conn, error) {
	s, err := c.upgrade(ctx, c.in("", "pods", pod)+"/portforward", url.Values{"ports": {strconv.Itoa(port)}})
	if err != nil {
		return nil, err
	}
	var begun [2]bool // the first message of each stream is the number of the port
	return &conn{socket: s, take: func(stream byte, b []byte) ([]byte, error) {
		switch {
		case stream > 1:
			return nil, nil
		case !begun[stream]:
			begun[stream] = true
			b = b[min(len(b), 2):]
		}
		if stream == 1 && len(b) > 0 {
			return nil, berth.Errorf(berth.Unavailable, "the port of the pod cannot be reached: %s", b[:min(len(b), 500)])
		}
		return b, nil
	}}, nil
}
