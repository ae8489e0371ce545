package control

import (
	"net"
	"strconv"
	"testing"
)

// TestPortsOfTwoServers: two servers on one machine do not hand out the same ports, also while nobody listens on them yet, and what the
// one has done with is the other's to have.
func TestPortsOfTwoServers(t *testing.T) {
	var one, other ports
	defer one.keep(nil)
	defer other.keep(nil)
	free := func(p *ports, n int) int {
		t.Helper()
		at, err := p.free(n, nil)
		if err != nil {
			t.Fatal(err)
		}
		return at
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
	one.keep(nil)
	other.next = at
	if got := free(&other, 1); got != at {
		t.Errorf("port %d, want %d, which nobody uses any more", got, at)
	}
}

// TestPortsInBetween: a block is none if somebody listens in the middle of it.
func TestPortsInBetween(t *testing.T) {
	var p ports
	defer p.keep(nil)
	at, err := p.free(10, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.keep(nil)
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(at+7))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p.next = at
	if got, err := p.free(10, nil); got == at || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}

// TestPortsTakenUp: a server that comes back keeps others off the ports of what runs on.
func TestPortsTakenUp(t *testing.T) {
	var before, after, other ports
	defer after.keep(nil)
	defer other.keep(nil)
	at, err := before.free(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	before.keep(nil) // it ends
	after.keep(map[int]int{at: portBlock})
	other.next = at
	if got, err := other.free(1, nil); got == at || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}
