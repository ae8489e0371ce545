package stream

import (
	"context"
	"errors"
	"sync"
	"testing"
	"unsafe"
)

// TestTreesShareOneLimit: however many inputs are streamed, what is kept of them has one limit, and
// nothing is kept of one that is over.
func TestTreesShareOneLimit(t *testing.T) {
	var all []*Tree
	for range kept + 50 {
		x := New([]File{{Path: "a", Size: 1}}, Whole(func(context.Context, int, int64, []byte) error { return nil }), nil)
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

// TestMemoryIsUsedAgain: who reads a large file from front to back asks for several blocks at once,
// and gets them into the memory of blocks that are forgotten. What is read is right all the same.
func TestMemoryIsUsedAgain(t *testing.T) {
	const size = 512<<20 + 5
	var mu sync.Mutex
	requests, rooms := 0, map[*byte]bool{}
	one := Whole(func(_ context.Context, _ int, off int64, p []byte) error {
		mu.Lock()
		rooms[unsafe.SliceData(p)] = true
		mu.Unlock()
		for i := range p {
			p[i] = byte((off + int64(i)) / 1000)
		}
		return nil
	})
	x := New([]File{{Path: "a", Size: size}}, func(ctx context.Context, i int, off int64, p [][]byte, came func(int)) error {
		mu.Lock()
		requests++
		mu.Unlock()
		return one(ctx, i, off, p, came)
	}, nil)
	defer x.Close()
	r := x.open(&x.nodes[1])
	p := make([]byte, 128<<10)
	for off := int64(0); off < size; off += int64(len(p)) {
		n, err := r.readAt(nil, p, off)
		if err != nil || n != int(min(int64(len(p)), size-off)) {
			t.Fatal(off, n, err)
		}
		for i := 0; i < n; i += 1000 {
			if p[i] != byte((off+int64(i))/1000) {
				t.Fatalf("byte %d is wrong", off+int64(i))
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if requests > 512/4 {
		t.Errorf("%d requests for 512 blocks", requests)
	}
	if len(rooms) > kept+2*ahead {
		t.Errorf("%d blocks were allocated; %d are kept", len(rooms), kept)
	}
}

// TestPartOfRun: of blocks that are asked for at once those that came are there when the others
// fail, which are asked for again.
func TestPartOfRun(t *testing.T) {
	var mu sync.Mutex
	fail := true
	one := Whole(func(_ context.Context, _ int, off int64, p []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if off >= 5<<20 && fail {
			return errors.New("it is away")
		}
		p[0] = byte(off >> 20)
		return nil
	})
	x := New([]File{{Path: "a", Size: 12 << 20}}, one, nil)
	defer x.Close()
	r := x.open(&x.nodes[1])
	for b := range 12 {
		p := make([]byte, 1)
		n, err := r.readAt(nil, p, int64(b)<<20)
		if b >= 5 && fail {
			if err == nil {
				t.Errorf("block %d was read", b)
			}
			mu.Lock()
			fail = false
			mu.Unlock()
			n, err = r.readAt(nil, p, int64(b)<<20)
		}
		if err != nil || n != 1 || p[0] != byte(b) {
			t.Errorf("block %d: %d, %v", b, p[0], err)
		}
	}
}
