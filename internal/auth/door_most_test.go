package auth

import (
	"net"
	"slices"
	"testing"
)

// TestDoorHasAnEnd: where no more connections fit, strangers make room for a newcomer; where all
// have shown who they are, the newcomer goes.
func TestDoorHasAnEnd(t *testing.T) {
	d := NewDoor(2)
	visit := func() (v *visitor, gone func() bool) {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close() })
		v = d.enter(far).(*visitor)
		return v, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return v.closed
		}
	}
	known := func(v *visitor, user string) { Known(d.ConnContext(t.Context(), v), user) }
	ann, annGone := visit()
	known(ann, "ann")
	_, strangerGone := visit()
	bob, bobGone := visit()
	if annGone() || !strangerGone() || bobGone() {
		t.Errorf("of three connections %v %v %v are closed", annGone(), strangerGone(), bobGone())
	}
	known(bob, "bob")
	late, lateGone := visit()
	if annGone() || bobGone() || !lateGone() {
		t.Errorf("of three connections %v %v %v are closed", annGone(), bobGone(), lateGone())
	}
	late.Close()
	ann.Close()
	ann.Close()
	if _, gone := visit(); gone() || d.open != 2 {
		t.Errorf("there is room for one more: %d open", d.open)
	}
}

// TestDoorIsNotOneUsers: a user who fills the server with connections makes room for others with
// the one they have not used for longest.
func TestDoorIsNotOneUsers(t *testing.T) {
	d := NewDoor(4)
	visit := func(user string) *visitor {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close() })
		v := d.enter(far).(*visitor)
		if user != "" {
			Known(d.ConnContext(t.Context(), v), user)
		}
		return v
	}
	closed := func(vs ...*visitor) (out []bool) {
		for _, v := range vs {
			out = append(out, v.closed)
		}
		return out
	}
	first, second, third := visit("bob"), visit("bob"), visit("bob")
	ann := visit("ann")
	Known(d.ConnContext(t.Context(), first), "bob") // it is used again
	again := visit("ann")
	if got := closed(first, second, third, ann, again); !slices.Equal(got, []bool{false, true, false, false, false}) {
		t.Errorf("closed: %v", got)
	}
	for _, v := range []*visitor{first, third, ann, again} {
		v.Close()
	}
	if d.open != 0 || len(d.users) != 0 || len(d.each) != 0 || d.all.n != 0 {
		t.Errorf("%d open, %v", d.open, d.users)
	}
}
