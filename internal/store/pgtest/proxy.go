package pgtest

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// A Proxy is the way of one server to its database, which can be stalled and cut.
type Proxy struct {
	l  net.Listener
	to string // a socket

	mu      sync.Mutex
	goes    *sync.Cond // on mu: it is not stalled any more
	stalled bool
	cut     bool
	conns   map[net.Conn]bool
	group   sync.WaitGroup
}

// Proxy makes another way to the server, for the length of a test.
func (s *Server) Proxy(t testing.TB) *Proxy {
	t.Helper()
	socket := filepath.Join(s.dir, "data", ".s.PGSQL.5432")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{l: l, to: socket, conns: map[net.Conn]bool{}}
	p.goes = sync.NewCond(&p.mu)
	p.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.group.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.Set(false, true)
		p.group.Wait()
	})
	return p
}

// Port is where it listens, at 127.0.0.1.
func (p *Proxy) Port() int { return p.l.Addr().(*net.TCPAddr).Port }

// Through is a URL of the server, as Schema returns it, by way of the proxy.
func (p *Proxy) Through(t testing.TB, of string) string {
	t.Helper()
	u, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("host", "127.0.0.1")
	q.Set("port", strconv.Itoa(p.Port()))
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}

// Set stalls it, so that nothing passes and nobody is told, or cuts it, so that there is no
// connection. Neither lets everything pass again, what was held back first.
func (p *Proxy) Set(stalled, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled, p.cut = stalled, cut
	if cut {
		for c := range p.conns {
			c.Close()
		}
	}
	p.goes.Broadcast()
}

// serve passes a connection on.
func (p *Proxy) serve(c net.Conn) {
	far, err := new(net.Dialer).DialContext(context.Background(), "unix", p.to)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[far] = true, true
	if p.cut {
		c.Close()
		far.Close()
	}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(far, c) })
	both.Go(func() { p.copy(c, far) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, far)
	p.mu.Unlock()
}

// copy passes on what comes from one side, unless it is stalled. The end of one is that of both,
// when the word of it passes.
func (p *Proxy) copy(to io.WriteCloser, from io.ReadCloser) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		for p.stalled && !p.cut {
			p.goes.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
