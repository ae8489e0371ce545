package stream

import (
	"context"
	"testing"
)

// TestTreesShareOneLimit: however many inputs are streamed, what is kept of them has one limit, and
// nothing is kept of one that is over.
func TestTreesShareOneLimit(t *testing.T) {
	var all []*Tree
	for range kept + 50 {
		x := New([]File{{Path: "a", Size: 1}}, func(context.Context, int, int64, []byte) error { return nil }, nil)
		if _, err := x.open(&x.nodes[1]).readAt(nil, make([]byte, 1), 0); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	count := func() int {
		memory.mu.Lock()
		defer memory.mu.Unlock()
		return len(memory.blocks)
	}
	if n := count(); n > kept {
		t.Errorf("%d blocks are kept", n)
	}
	for _, x := range all {
		x.Close()
	}
	if n := count(); n != 0 {
		t.Errorf("%d blocks are kept of trees that are over", n)
	}
}
