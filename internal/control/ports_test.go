package control

import (
	"net"
	"strconv"
	"testing"
)

// claimed is the first of n ports that were reserved.
func (p *ports) claimed(t *testing.T, n int) int {
	t.Helper()
	span, err := spanOf(n)
	if err != nil {
		t.Fatal(err)
	}
	at, err := p.find(n, span)
	if err != nil {
		t.Fatal(err)
	}
	p.reserved[at] = span
	return at
}

// TestPortsOfTwoServers: two servers on one machine do not hand out the same ports, also while
// nobody listens on them yet, and what the one has done with is the other's to have.
func TestPortsOfTwoServers(t *testing.T) {
	var one, other ports
	defer one.close()
	defer other.close()
	free := func(p *ports, n int) int {
		t.Helper()
		return p.claimed(t, n)
	}
	at := free(&one, 2*portBlock)
	for _, next := range []int{at, at + portBlock} {
		other.next = next
		if got := free(&other, 1); got >= at && got < at+2*portBlock {
			t.Errorf("port %d is in the block of another server, which begins at %d", got, at)
		}
	}
	one.keep(map[int]int{at: 2 * portBlock})
	other.next = at
	if got := free(&other, 1); got == at {
		t.Errorf("port %d was given away while it was in use", got)
	}
	one.close()
	other.next = at
	if got := free(&other, 1); got != at {
		t.Errorf("port %d, want %d, which nobody uses any more", got, at)
	}
}

// TestPortsInBetween: a block is none if somebody listens in the middle of it.
func TestPortsInBetween(t *testing.T) {
	var p ports
	defer p.close()
	at := p.claimed(t, 10)
	p.close()
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(at+7))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p.next = at
	if got := p.claimed(t, 10); got == at {
		t.Errorf("port %d, and somebody listens in its block", got)
	}
}

// TestPortsTakenUp: a server that comes back keeps others off the ports of what runs on.
func TestPortsTakenUp(t *testing.T) {
	var before, after, other ports
	defer after.close()
	defer other.close()
	at := before.claimed(t, 1)
	before.close() // it ends
	after.keep(map[int]int{at: portBlock})
	other.next = at
	if got := other.claimed(t, 1); got == at {
		t.Errorf("port %d is in use", got)
	}
}
