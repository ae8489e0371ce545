package app

import (
	"net"
	"net/netip"
	"testing"
)

// TestRelays: a connection that the server opens to itself is known as long as it is open.
func TestRelays(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(c.LocalAddr().String())
	var r relays
	if r.has(at) {
		t.Error("a connection that was not added is known")
	}
	c = r.add(c)
	if !r.has(at) {
		t.Error("the connection is not known")
	}
	for range 2 { // a second call is an error of the connection alone
		_ = c.Close()
	}
	if r.has(at) {
		t.Error("a closed connection is known")
	}
}
