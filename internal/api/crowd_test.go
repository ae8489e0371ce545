package api

import "testing"

// TestOneUserLeavesRoomForOthers: however many logs somebody follows, others can follow some.
func TestOneUserLeavesRoomForOthers(t *testing.T) {
	c := crowd{limit: 8}
	n := 0
	for c.enter("ann") {
		n++
	}
	if n != 6 || !c.enter("bob") || !c.enter("bob") || c.enter("bob") || c.size() != 8 {
		t.Fatalf("ann follows %d, together they are %d", n, c.size())
	}
	c.leave("ann")
	if c.enter("ann"); c.size() != 8 || c.of["ann"] != 6 {
		t.Fatalf("there are %v", c.of)
	}
	for range 6 {
		c.leave("ann")
	}
	if _, there := c.of["ann"]; there || c.size() != 2 {
		t.Fatalf("there are %v", c.of)
	}
}
