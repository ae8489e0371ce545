package crash_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy is the way of one server to its database, which can be stalled and cut.
type proxy struct {
	l  net.Listener
	to string // a socket

	mu      sync.Mutex
	goes    *sync.Cond // on mu: it is not stalled any more
	stalled bool
	cut     bool
	conns   map[net.Conn]bool
	group   sync.WaitGroup
}

func newProxy(t *testing.T, socket string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: socket, conns: map[net.Conn]bool{}}
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
		p.set(false, true)
		p.group.Wait()
	})
	return p
}

// port is where it listens.
func (p *proxy) port() int { return p.l.Addr().(*net.TCPAddr).Port }

// set stalls it, so that nothing passes and nobody is told, or cuts it, so that there is no connection. Neither lets everything pass
// again, what was held back first.
func (p *proxy) set(stalled, cut bool) {
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
func (p *proxy) serve(c net.Conn) {
	far, err := net.Dial("unix", p.to)
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

// copy passes on what comes from one side, unless it is stalled. The end of one is that of both, when the word of it passes.
func (p *proxy) copy(to io.WriteCloser, from io.ReadCloser) {
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
