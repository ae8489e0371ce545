package points

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Walk calls each with the points of a series in the order of History, without keeping them, after
// begin with their number. That can be done where they lie in this order, each once, and with steps
// that do not fall, which is how most series are logged; else ok is false, maybe after some calls
// of each.
func (s *Set) Walk(name, key string, begin func(n int), each func(i int, p Point)) (ok bool, err error) {
	s.mu.RLock()
	var x *series
	if o := s.owners[name]; o != nil {
		x = o.find(key)
	}
	if x == nil {
		s.mu.RUnlock()
		begin(0)
		return true, nil
	}
	// See History.
	chunks, lists := x.chunks, [][]Point{x.sealed, x.recent}
	s.mu.RUnlock()
	w := walk{each: each, last: Point{Timestamp: math.MinInt64, Step: math.MinInt64}}
	n := len(lists[0]) + len(lists[1])
	for _, c := range chunks {
		n += int(c.count)
	}
	begin(n)
	var buf []byte
	for _, c := range chunks {
		if buf, err = c.load(buf); err != nil {
			return false, err
		}
		if ok, err := w.chunk(buf[chunkHeader:], int(c.count)); !ok || err != nil {
			if err != nil {
				err = fmt.Errorf("%s at %d: %w", c.seg.f.Name(), c.at, err)
			}
			return false, err
		}
	}
	for _, l := range lists {
		for _, p := range l {
			if !w.next(p) {
				return false, nil
			}
		}
	}
	return true, nil
}

// A walk is the points that were gone through so far.
type walk struct {
	each func(i int, p Point)
	i    int
	last Point
}

// next goes on to p, unless it belongs elsewhere.
func (w *walk) next(p Point) bool {
	if p.Step < w.last.Step || p.Timestamp < w.last.Timestamp || p.Step == w.last.Step && p.Timestamp == w.last.Timestamp {
		return false
	}
	w.each(w.i, p)
	w.i, w.last = w.i+1, p
	return true
}

// chunk goes through the columns of a chunk side by side.
func (w *walk) chunk(b []byte, count int) (bool, error) {
	if count > len(b)/8 {
		return false, errSegment
	}
	times, values := b[:len(b)-8*count], b[len(b)-8*count:]
	split := skip(times, count)
	if split < 0 {
		return false, errSegment
	}
	times, steps := times[:split], times[split:]
	var t, s column
	for i := range count {
		if !t.next(&times) || !s.next(&steps) {
			return false, errSegment
		}
		if !w.next(Point{Timestamp: t.at, Step: s.at, Value: math.Float64frombits(binary.LittleEndian.Uint64(values[8*i:]))}) {
			return false, nil
		}
	}
	if len(times) != 0 || len(steps) != 0 {
		return false, errSegment
	}
	return true, nil
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
