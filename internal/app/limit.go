package app

import (
	"net"
	"sync"
	"sync/atomic"
)

// ownDescriptors is how many descriptors a server needs for itself and for requests that are answered at once.
const ownDescriptors = 128

// followers is how many logs and streams may be followed where a process may have n descriptors: each takes a connection and a file.
func followers(n int) int { return max(8, (n-ownDescriptors)/3) }

// A cappedListener closes connections at once that are more than most, so that descriptors are left for the local socket.
type cappedListener struct {
	net.Listener
	most int64
	open atomic.Int64
}

// Accept is that of [net.Listener].
func (l *cappedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &cappedConn{Conn: c, of: l}, nil
		}
		l.open.Add(-1)
		c.Close()
	}
}

// cappedConn is a connection of a cappedListener.
type cappedConn struct {
	net.Conn
	of   *cappedListener
	once sync.Once
}

// Close is that of [net.Conn].
func (c *cappedConn) Close() error {
	c.once.Do(func() { c.of.open.Add(-1) })
	return c.Conn.Close()
}
