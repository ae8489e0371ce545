package auth

import "time"

// LookAgain has the files of a pair looked at for the next client.
func (p *Pair) LookAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Time{}
}

// Serial is the serial number of the certificate that is served.
func (p *Pair) Serial() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.Leaf.SerialNumber.String()
}
