package auth

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// TestDoorKeepsStrangersFew: connections that say nothing make room for newer ones, those that
// showed a token stay.
func TestDoorKeepsStrangersFew(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := NewDoor(0)
	d.limit = func(netip.Addr) int { return 3 }
	in := d.Listen(l)
	visit := func() (near, far net.Conn) {
		t.Helper()
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { near.Close() })
		if far, err = in.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { far.Close() })
		return near, far
	}
	known, far := visit()
	Known(d.ConnContext(t.Context(), far), "ann")
	var near []net.Conn
	for range 5 {
		c, _ := visit()
		near = append(near, c)
	}
	for i, c := range near[:2] {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("stranger %d is still there: %v", i, err)
		}
	}
	for i, c := range append(near[2:], known) {
		if err := c.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d was sent away: %v", i, err)
		}
	}
	if d.all.n != 3 || d.each[netip.MustParseAddr("127.0.0.1")].n != 3 {
		t.Errorf("%d strangers", d.all.n)
	}
}

// TestDoorForgetsWhoLeaves: a connection that was closed does not count, and nothing is left of the
// last one of an address.
func TestDoorForgetsWhoLeaves(t *testing.T) {
	d := NewDoor(0)
	for range 3 {
		a, b := net.Pipe()
		v := d.enter(a)
		defer b.Close()
		v.Close()
		v.Close()
	}
	if d.all.n != 0 || d.all.first != nil || d.all.last != nil || len(d.each) != 0 {
		t.Errorf("%+v", d)
	}
}

func TestHousehold(t *testing.T) {
	for addr, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "::1": "::1",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "2001:db8:1:2::9": "2001:db8:1:2::",
	} {
		got := household(&net.TCPAddr{IP: net.ParseIP(addr), Port: 7})
		if got.String() != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// TestJobIsNoStranger: a connection over which a job has shown its tracking token stays, and one
// with a bad token does not.
func TestJobIsNoStranger(t *testing.T) {
	keys, err := LoadKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "berth.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	a, now := NewAuthority(keys, db), time.Now()
	if _, err := a.Create(t.Context(), Token{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	d := NewDoor(0)
	near, far := net.Pipe()
	defer near.Close()
	ctx := d.ConnContext(t.Context(), d.enter(far))
	for _, c := range []struct {
		user, token string
		strangers   int
	}{
		{"ann", keys.TrackToken("j.1", now.Add(-time.Hour)), 1},
		{"ann", keys.TrackToken("j.1", now.Add(time.Hour)) + "x", 1},
		{"nobody", keys.TrackToken("j.1", now.Add(time.Hour)), 1},
		{"ann", keys.TrackToken("j.1", now.Add(time.Hour)), 0},
	} {
		ok, err := a.CheckTrack(ctx, c.token, now, func(berth.TaskID) (string, error) { return c.user, nil })
		if !ok || (err == nil) != (c.strangers == 0) || d.all.n != c.strangers {
			t.Errorf("%+v: %v %v, %d strangers", c, ok, err, d.all.n)
		}
	}
}
