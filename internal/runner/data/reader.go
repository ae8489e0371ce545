package data

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/berthml/berth"
)

// Reader reads parts of files elsewhere. It may be used concurrently. A file that changes after it
// was first read, or since it was listed where the list has tags, is not read any further.
type Reader struct {
	c        *Client
	to       func(i int) address
	name     func(i int) string // of a file, for people
	describe func(error) error

	mu   sync.Mutex
	pins map[int]*pin
}

// Reader reads files of the tree at rawURL in the server's storage.
func (c *Client) Reader(rawURL string, t *berth.Tree) *Reader {
	return &Reader{
		c: c, pins: map[int]*pin{}, name: func(i int) string { return t.Files[i].Path },
		to: func(i int) address {
			if t.Single {
				return fixed(trimSlash(rawURL))
			}
			return fixed(Join(trimSlash(rawURL), t.Files[i].Path))
		},
		describe: func(err error) error {
			if berth.CodeOf(err) == berth.Precondition {
				err = berth.Errorf(berth.Conflict, "it changed while it was being read")
			}
			return describe("reading", rawURL, err)
		},
	}
}

// Reader reads files of a list of the place.
func (o *Outside) Reader(list []Object) *Reader {
	rs := make([]berth.OutsideRequest, len(list))
	r := &Reader{c: o.c, pins: map[int]*pin{}, name: func(i int) string { return list[i].Path }}
	for i, x := range list {
		rs[i] = berth.OutsideRequest{Do: berth.OutsideGet, Name: strings.TrimSuffix(x.Path, "/")} // folders are never read
		if v := o.version(x); v.known() {
			r.pins[i] = &pin{v: v}
		}
	}
	r.to = o.batch(rs).address
	r.describe = func(err error) error { return o.describe("reading", err) }
	return r
}

// Read fills the blocks p, of equal size but for the last, with the bytes of file i from off on.
// came is called with how many are full, once for each.
func (r *Reader) Read(ctx context.Context, i int, off int64, p [][]byte, came func(n int)) error {
	end := off
	for _, b := range p {
		end += int64(len(b))
	}
	err := r.c.part(ctx, r.to(i), r.pin(i), &blocks{p: p, off: off, came: came}, off, end)
	if name := r.name(i); err != nil && name != "" {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return r.describe(err)
}

func (r *Reader) pin(i int) *pin {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pins[i] == nil {
		r.pins[i] = new(pin)
	}
	return r.pins[i]
}

// blocks are a part of a file from off on.
type blocks struct {
	p    [][]byte
	off  int64
	came func(n int)
	full int // how many are
}

func (b *blocks) take(r io.Reader, at, end int64) (total int64, err error) {
	size := int64(len(b.p[0]))
	for at < end && err == nil {
		k := (at - b.off) / size
		to := b.p[k][(at-b.off)%size:]
		if int(k) < b.full { // somebody has it: the file was begun again
			var skipped int64
			skipped, err = io.CopyN(io.Discard, r, int64(len(to)))
			at, total = at+skipped, total+skipped
			continue
		}
		var n int
		n, err = io.ReadFull(r, to)
		at, total = at+int64(n), total+int64(n)
		if n == len(to) {
			b.full++
			b.came(b.full)
		}
	}
	return total, err
}
