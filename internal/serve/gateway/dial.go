package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/serve"
)

const (
	// proofTime is how long a worker may take to prove that it is one.
	proofTime = 10 * time.Second
	// idleTime is how long a connection is kept that nobody uses. It is shorter than the worker's
	// time, so that it is this end which closes; and workers rest when there are no connections.
	idleTime = 4 * time.Second
	// maxHead bounds the header of an answer.
	maxHead = 64 << 10
)

var errProof = errors.New("what listens there is not the worker of the replica")

// A conn is a connection to a worker. It has one request at a time.
type conn struct {
	net.Conn
	in    *bufio.Reader
	since time.Time // it is idle

	raw    syscall.RawConn // nil where the connection is not a socket
	peek   func(fd uintptr) bool
	closed bool // as peek found out
}

// connect is a connection to a worker: the one that is idle, or another. It is for a request that
// may take timeout; a worker that rested may take patience until it answers.
func (g *Gateway) connect(ctx context.Context, s *slot, patience, timeout time.Duration) (*conn, error) {
	if c := s.idle.Swap(nil); c != nil {
		if c.SetDeadline(time.Now().Add(timeout)) == nil && c.open() {
			return c, nil
		}
		c.Close()
	}
	c, err := g.dial(ctx, s, patience)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(timeout))
}

// dial opens a connection to a worker, which has to prove first that it is the one of its replica:
// another program may have got its port.
func (g *Gateway) dial(ctx context.Context, s *slot, patience time.Duration) (*conn, error) {
	socket, err := g.o.Reach.Dial(ctx, s.address)
	if err != nil {
		return nil, err
	}
	c := newConn(socket)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	defer stop()
	if err := g.prove(ctx, c, s.job, max(proofTime, patience)); err != nil {
		c.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: socket.RemoteAddr(), Err: err}
	}
	return c, nil
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func newConn(socket net.Conn) *conn {
	c := &conn{Conn: socket, in: bufio.NewReaderSize(socket, 16<<10)}
	if s, ok := socket.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	c.peek = func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		c.closed = n >= 0 && err == nil || err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
		return true
	}
	return c
}

// open says whether a connection that was idle can be used: one that the worker has closed, or on
// which it has sent what nobody asked for, cannot.
func (c *conn) open() bool {
	if c.in.Buffered() > 0 {
		return false
	}
	if e, ok := c.Conn.(interface{ Ended() bool }); ok && e.Ended() { // to a machine that is attached
		return false
	}
	return c.raw == nil || c.raw.Read(c.peek) == nil && !c.closed
}

func (g *Gateway) prove(ctx context.Context, c *conn, job string, patience time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	nonce := berth.NewGUID()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: worker\r\n"+serve.NonceHeader+": "+nonce+"\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, 4<<10); !errors.Is(err, io.EOF) {
		return errProof
	}
	if c.in.Buffered() > 0 || !serve.Proves(resp.Header, g.o.Secret(job), nonce) {
		return errProof
	}
	return nil
}

// keeping is the connection of a worker that nobody uses now.
type keeping struct {
	idle  atomic.Pointer[conn]
	timed atomic.Bool // expire is called some time
}

// keep keeps a connection for the next request.
func (k *keeping) keep(c *conn) {
	c.since = time.Now()
	if old := k.idle.Swap(c); old != nil {
		old.Close()
	}
	if k.timed.CompareAndSwap(false, true) {
		time.AfterFunc(idleTime, k.expire)
	}
}

// expire closes the connection once it has been idle for long enough.
func (k *keeping) expire() {
	k.timed.Store(false)
	c := k.idle.Swap(nil) // so that nobody uses it meanwhile
	if c == nil {
		return
	}
	left := idleTime - time.Since(c.since)
	if left <= 0 {
		c.Close()
		return
	}
	if !k.idle.CompareAndSwap(nil, c) {
		c.Close()
	}
	if k.timed.CompareAndSwap(false, true) {
		time.AfterFunc(left, k.expire)
	}
}

// drop closes the connection.
func (k *keeping) drop() {
	if c := k.idle.Swap(nil); c != nil {
		c.Close()
	}
}
