package api

import "testing"

// TestUsersLeaveRoomForOthers: however many logs some users follow, others can follow some, and
// administrators still can when nobody else can.
func TestUsersLeaveRoomForOthers(t *testing.T) {
	c := followers{limit: 64}
	fill := func(user string, admin bool) (n int) {
		for c.enter(user, admin) {
			n++
		}
		return n
	}
	got := [...]int{fill("ann", false), fill("bob", false), fill("cy", false), fill("dan", false), fill("eve", false), fill("root", true)}
	if want := [...]int{16, 16, 16, 8, 0, 8}; got != want || c.size() != 64 {
		t.Fatalf("they follow %v, want %v, together %d", got, want, c.size())
	}
	c.leave("ann")
	c.leave("root")
	if c.enter("eve", false) || !c.enter("root", true) {
		t.Fatal("the room of administrators was given away")
	}
	for range 15 {
		c.leave("ann")
	}
	if _, there := c.of["ann"]; there || !c.enter("eve", false) {
		t.Fatalf("there are %v", c.of)
	}
}
