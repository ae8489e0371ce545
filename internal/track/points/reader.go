package points

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"
)

// A Reader reads the points that a series had when it was made, each once, by timestamp, then step,
// then value. It has few of them in memory: of points that were written in this order, one chunk.
type Reader struct {
	chunks []chunk     // by their first point
	lists  []sortedRun // of points that are in memory anyway
	most   int64

	left   []chunk // not reached yet
	open   []*source
	spare  []*source
	last   Point
	began  bool
	failed error

	lose func(chunk) error // is told of damaged chunks, which are left out; nil: they are errors
}

// sortedRun is points that may be in another order, which by has then.
type sortedRun struct {
	points []Point
	by     []int32 // nil where they are sorted
}

// Reader returns a reader of a series.
func (s *Set) Reader(name, key string) *Reader {
	s.mu.RLock()
	var x *series
	if o := s.owners[name]; o != nil {
		x = o.find(key)
	}
	if x == nil {
		s.mu.RUnlock()
		return &Reader{}
	}
	// The slices only grow, or are replaced: what is copied here stays as it is.
	chunks, sealed, recent := x.chunks, x.sealed, x.recent
	s.mu.RUnlock()
	return newReader(nil, chunks, sealed, recent)
}

func newReader(lose func(chunk) error, chunks []chunk, lists ...[]Point) *Reader {
	r := &Reader{chunks: slices.Clone(chunks), lose: lose}
	slices.SortStableFunc(r.chunks, func(a, b chunk) int { return compare(a.first, b.first) })
	for _, c := range r.chunks {
		r.most += int64(c.count)
	}
	for _, p := range lists {
		if len(p) > 0 {
			r.lists = append(r.lists, sortedRun{p, orderOf(p)})
			r.most += int64(len(p))
		}
	}
	r.Rewind()
	return r
}

// orderOf is the order of points that are not sorted, nil of others.
func orderOf(p []Point) []int32 {
	if slices.IsSortedFunc(p, compare) {
		return nil
	}
	by := make([]int32, len(p))
	for i := range by {
		by[i] = int32(i)
	}
	slices.SortFunc(by, func(a, b int32) int { return compare(p[a], p[b]) })
	return by
}

// Most is how many points there are at most; repeated ones count.
func (r *Reader) Most() int64 { return r.most }

// Rewind goes back to the first point.
func (r *Reader) Rewind() {
	r.left, r.open, r.began, r.failed = r.chunks, nil, false, nil
	for _, l := range r.lists {
		c := &source{list: l}
		c.advance() //nolint:errcheck // it reads nothing
		r.open = append(r.open, c)
	}
}

// Next reads the next points into p, as many as there are and have room; 0 is the end.
func (r *Reader) Next(p []Point) (n int, err error) {
	for n < len(p) && r.failed == nil {
		var c *source
		var until Point
		var bounded bool
		if c, until, bounded, r.failed = r.least(); c == nil {
			break
		}
		for n < len(p) && !c.ended && (!bounded || c.head.Timestamp < until.Timestamp || compare(c.head, until) <= 0) {
			if !r.began || !same(c.head, r.last) {
				p[n], r.last, r.began = c.head, c.head, true
				n++
			}
			if r.failed = c.advance(); r.failed != nil {
				break
			}
		}
	}
	return n, r.failed
}

// least is the source with the first point, which comes first as long as its points are not after
// until. Chunks that begin before that are opened.
func (r *Reader) least() (c *source, until Point, bounded bool, err error) {
	for {
		c, bounded = nil, false
		for i := 0; i < len(r.open); i++ {
			x := r.open[i]
			switch {
			case x.ended:
				r.open = slices.Delete(r.open, i, i+1)
				i--
				if x.bytes != nil {
					r.spare = append(r.spare, x)
				}
				continue
			case c == nil:
				c = x
				continue
			case compare(x.head, c.head) < 0:
				x, c = c, x
			}
			if !bounded || compare(x.head, until) < 0 {
				until, bounded = x.head, true
			}
		}
		if len(r.left) == 0 {
			return c, until, bounded, nil
		}
		next := r.left[0]
		if c != nil && compare(next.first, c.head) > 0 {
			if !bounded || compare(next.first, until) < 0 {
				until, bounded = next.first, true
			}
			return c, until, bounded, nil
		}
		r.left = r.left[1:]
		if err := r.openChunk(next); err != nil {
			return nil, until, false, err
		}
	}
}

func (r *Reader) openChunk(c chunk) error {
	x := &source{}
	if n := len(r.spare); n > 0 {
		x, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	if err := x.load(c); err != nil {
		if r.lose != nil && errors.Is(err, errSegment) {
			return r.lose(c)
		}
		return err
	}
	r.open = append(r.open, x)
	return nil
}

// A source is a list or a chunk, and how far it was read. A chunk is decoded point by point.
type source struct {
	head  Point // the point it is at
	ended bool
	i     int // of the next point

	list sortedRun

	bytes                []byte
	from                 chunk
	times, steps, values []byte // what is left of the columns
	t, s                 column
}

// load reads a chunk and goes to its first point.
func (c *source) load(from chunk) (err error) {
	b, err := from.load(c.bytes)
	if err != nil {
		return err
	}
	*c = source{bytes: b, from: from}
	if !c.split(b[chunkHeader:], int(from.count)) {
		return c.from.damaged()
	}
	return c.advance()
}

// split finds the columns of a chunk.
func (c *source) split(b []byte, count int) bool {
	if count < 0 || count > len(b)/8 {
		return false
	}
	times, values := b[:len(b)-8*count], b[len(b)-8*count:]
	at := skip(times, count)
	if at < 0 || skip(times[at:], count) != len(times)-at {
		return false
	}
	c.times, c.steps, c.values = times[:at], times[at:], values
	return true
}

// advance goes to the next point.
func (c *source) advance() error {
	if c.bytes == nil {
		if c.i == len(c.list.points) {
			c.ended = true
			return nil
		}
		at := c.i
		if c.list.by != nil {
			at = int(c.list.by[at])
		}
		c.head = c.list.points[at]
		c.i++
		return nil
	}
	if 8*c.i == len(c.values) {
		c.ended = true
		return nil
	}
	if !c.t.next(&c.times) || !c.s.next(&c.steps) {
		return c.from.damaged()
	}
	c.head = Point{Timestamp: c.t.at, Step: c.s.at, Value: math.Float64frombits(binary.LittleEndian.Uint64(c.values[8*c.i:]))}
	c.i++
	return nil
}

// A column is numbers that are written as differences of differences.
type column struct{ at, by int64 }

func (c *column) next(b *[]byte) bool {
	if len(*b) > 0 && (*b)[0] < 0x80 { // the commonest
		u := uint64((*b)[0])
		c.by += int64(u>>1) ^ -int64(u&1)
		*b = (*b)[1:]
	} else {
		d, n := binary.Varint(*b)
		if n <= 0 {
			return false
		}
		c.by += d
		*b = (*b)[n:]
	}
	c.at += c.by
	return true
}

// skip is the length of the first n varints of b, -1 when there are fewer.
func skip(b []byte, n int) int {
	i := 0
	for n >= 8 && i+8 <= len(b) {
		n -= bits.OnesCount64(^binary.LittleEndian.Uint64(b[i:]) & 0x8080808080808080)
		i += 8
	}
	for ; n > 0; i++ {
		if i >= len(b) {
			return -1
		}
		if b[i] < 0x80 {
			n--
		}
	}
	return i
}
