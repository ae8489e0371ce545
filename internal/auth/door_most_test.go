package auth

import (
	"net"
	"testing"
)

// TestDoorHasAnEnd: where no more connections fit, strangers make room for a newcomer; where all have shown who they are, the newcomer goes.
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
	known := func(v *visitor) { Known(d.ConnContext(t.Context(), v)) }
	ann, annGone := visit()
	known(ann)
	_, strangerGone := visit()
	bob, bobGone := visit()
	if annGone() || !strangerGone() || bobGone() {
		t.Errorf("of three connections %v %v %v are closed", annGone(), strangerGone(), bobGone())
	}
	known(bob)
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
