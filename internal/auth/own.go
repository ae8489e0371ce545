package auth

import (
	"crypto/tls"
	"os"
	"sync"
	"time"

	"github.com/berthml/berth"
)

// Pair is a certificate of another authority, in two files. They are read again when they change:
// whoever renews them need not restart the server.
type Pair struct {
	cert, key string

	mu    sync.Mutex
	now   *tls.Certificate
	stamp string
	next  time.Time // when the files are looked at again
}

// pairLook is how often the files are looked at.
const pairLook = 10 * time.Second

// LoadPair reads a certificate with those that lead to its authority, and its key.
func LoadPair(cert, key string) (*Pair, error) {
	p := &Pair{cert: cert, key: key}
	p.stamp = p.look()
	now, err := p.read()
	p.now = now
	return p, err
}

func (p *Pair) read() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "tls_certificate and tls_key in berth.yaml: %w", err)
	}
	return &c, nil
}

// look tells one state of the files from another.
func (p *Pair) look() string {
	stamp := ""
	for _, path := range []string{p.cert, p.key} {
		if info, err := os.Stat(path); err == nil {
			stamp += info.ModTime().String() + " "
		}
	}
	return stamp
}

// Serve is the certificate for a client that asks for a name of it, nil for others.
func (p *Pair) Serve(h *tls.ClientHelloInfo) *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := time.Now(); t.After(p.next) {
		p.next = t.Add(pairLook)
		if stamp := p.look(); stamp != p.stamp {
			if c, err := p.read(); err == nil { // one that is half written is read later
				p.now, p.stamp = c, stamp
			}
		}
	}
	if h.ServerName == "" || p.now.Leaf.VerifyHostname(h.ServerName) != nil {
		return nil
	}
	return p.now
}
