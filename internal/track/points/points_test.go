package points

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func open(t *testing.T, dir string, o Options) *Set {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func history(t *testing.T, s *Set, owner, key string) []Point {
	t.Helper()
	p, err := all(s.Reader(owner, key))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// all is what a reader reads, in pieces of different sizes.
func all(r *Reader) (out []Point, err error) {
	for size := 1; ; size = size%7 + 1 {
		p := make([]Point, size)
		n, err := r.Next(p)
		if n == 0 || err != nil {
			return out, err
		}
		out = append(out, p[:n]...)
	}
}

// TestHistoryIsASet: exact repetitions are one point, across journals and segments, and NaN and
// infinities come back.
func TestHistoryIsASet(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{JournalSize: 1})
	batch := []Entry{
		{"r", "loss", Point{10, 1, 0.5}},
		{"r", "loss", Point{10, 1, math.NaN()}},
		{"r", "loss", Point{5, 7, math.Inf(-1)}},
		{"r", "acc", Point{10, 1, 1}},
	}
	for range 4 {
		if err := s.Append(batch); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		got := history(t, s, "r", "loss")
		if len(got) != 3 || got[0].Value != math.Inf(-1) || got[1].Value != 0.5 || !math.IsNaN(got[2].Value) {
			t.Fatalf("history is %v", got)
		}
		last, ok := s.Last("r", "loss")
		if !ok || last.Latest.Step != 7 {
			t.Fatalf("latest is %v", last)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, Options{})
	}
	if got := s.Latest("r"); len(got) != 2 || got[0].Key != "acc" {
		t.Fatalf("latest is %v", got)
	}
	if got := history(t, s, "r", "none"); got != nil {
		t.Fatalf("history of an unknown key is %v", got)
	}
}

// TestConcurrentAppends: what many writers append at once is there once, also after it was opened
// again and compacted.
func TestConcurrentAppends(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{JournalSize: 4 << 10, NoSync: true})
	const writers, batches, size = 8, 50, 10
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for b := range batches {
				var batch []Entry
				for i := range size {
					n := int64(b*size + i)
					batch = append(batch, Entry{fmt.Sprint("run", w), "m", Point{n, n, float64(n)}})
				}
				if err := s.Append(batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	check := func() {
		t.Helper()
		for w := range writers {
			got := history(t, s, fmt.Sprint("run", w), "m")
			if len(got) != batches*size {
				t.Fatalf("writer %d has %d points, want %d", w, len(got), batches*size)
			}
			for i, p := range got {
				if p != (Point{int64(i), int64(i), float64(i)}) {
					t.Fatalf("point %d is %v", i, p)
				}
			}
		}
	}
	check()
	s.Close()
	s = open(t, dir, Options{})
	check()
	s.Close()
	s = open(t, dir, Options{JournalSize: 1})
	check()
	if names, _ := filepath.Glob(filepath.Join(dir, "*.seg")); len(names) == 0 {
		t.Fatal("there is no segment")
	}
	if err := s.Append([]Entry{{"x", "y", Point{}}}); err != nil {
		t.Fatal(err)
	}
}

// TestTornEnd cuts a journal at every byte: what was in whole frames before the cut is there,
// nothing else is, and the journal can be written on.
func TestTornEnd(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{NoSync: true})
	ends := []int64{0}
	for i := range int64(8) {
		if err := s.Append([]Entry{{"r", "m", Point{i, i, float64(i)}}, {"r", fmt.Sprint("k", i), Point{i, i, 1}}}); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, s.journal.size)
	}
	s.Close()
	whole, err := os.ReadFile(s.path(1, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range int64(len(whole)) + 1 {
		want := 0
		for want+1 < len(ends) && ends[want+1] <= cut {
			want++
		}
		for _, junk := range [][]byte{nil, make([]byte, 40), {0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9}} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "00000001.log"), append(append([]byte{}, whole[:cut]...), junk...), 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir, Options{NoSync: true})
			if got := history(t, s, "r", "m"); len(got) != want {
				t.Fatalf("cut at %d of %d: %d points, want %d", cut, len(whole), len(got), want)
			}
			if err := s.Append([]Entry{{"r", "m", Point{100, 100, 100}}}); err != nil {
				t.Fatal(err)
			}
			s.Close()
			s = open(t, dir, Options{NoSync: true})
			if got := history(t, s, "r", "m"); len(got) != want+1 {
				t.Fatalf("cut at %d, written on: %d points, want %d", cut, len(got), want+1)
			}
			s.Close()
		}
	}
}

// TestFailedWrite: after a write that failed nothing of it is seen, and the next one works.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{NoSync: true})
	if err := s.Append([]Entry{{"r", "m", Point{1, 1, 1}}}); err != nil {
		t.Fatal(err)
	}
	s.journal.f.Close() // every write fails from here on
	if err := s.Append([]Entry{{"r", "m", Point{2, 2, 2}}, {"r", "new", Point{2, 2, 2}}}); err == nil {
		t.Fatal("a write to a closed file succeeded")
	}
	if got := history(t, s, "r", "m"); len(got) != 1 {
		t.Fatalf("history is %v", got)
	}
	f, err := os.OpenFile(s.path(1, "log"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.journal.f = f
	if err := s.Append([]Entry{{"r", "new", Point{3, 3, 3}}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir, Options{})
	if a, b := history(t, s, "r", "m"), history(t, s, "r", "new"); len(a) != 1 || len(b) != 1 {
		t.Fatalf("histories are %v and %v", a, b)
	}
}

// TestUnfinishedSegmentOfAnother: a process that has the points no more and does not know it leaves
// the segment alone that the next one is making. Open removes those that nobody finished.
func TestUnfinishedSegmentOfAnother(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{JournalSize: 1, NoSync: true})
	others := filepath.Join(dir, "00000009.seg.new1")
	if err := os.WriteFile(others, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Append([]Entry{{"r", "m", Point{1, 1, 1}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // it has been compacted
		t.Fatal(err)
	}
	if _, err := os.Stat(s.path(1, "seg")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(others); err != nil {
		t.Errorf("the segment of another process: %v", err)
	}
	open(t, dir, Options{})
	if _, err := os.Stat(others); !os.IsNotExist(err) {
		t.Errorf("what nobody finished is left: %v", err)
	}
}

// FuzzReplay: no bytes make recovery crash or read beyond whole frames.
func FuzzReplay(f *testing.F) {
	dir := f.TempDir()
	s, err := Open(dir, Options{NoSync: true})
	if err != nil {
		f.Fatal(err)
	}
	for i := range int64(3) {
		if err := s.Append([]Entry{{"r", "m", Point{i, i, float64(i)}}}); err != nil {
			f.Fatal(err)
		}
	}
	s.Close()
	b, _ := os.ReadFile(s.path(1, "log"))
	f.Add(b)
	f.Add(b[:len(b)-3])
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := replay(b, func(uint64, string, string) {}, func(uint64, Point) {})
		if end < 0 || end > int64(len(b)) {
			t.Fatalf("ends at %d of %d", end, len(b))
		}
		if err != nil {
			return
		}
		again, err := replay(b[:end], func(uint64, string, string) {}, func(uint64, Point) {})
		if err != nil || again != end {
			t.Fatalf("%d, then %d (%v)", end, again, err)
		}
	})
}

// FuzzChunk: no bytes make a chunk's reader crash, and what it reads is read again from what is
// written of it. The bytes may differ: a number can be written longer than it has to be.
func FuzzChunk(f *testing.F) {
	f.Add(encodeChunk(nil, []Point{{1, 2, 3}, {4, 5, 6}})[chunkHeader:], 2)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		c := source{bytes: b}
		if b == nil || !c.split(b, n) {
			return
		}
		var p []Point
		for range n {
			if !c.t.next(&c.times) || !c.s.next(&c.steps) {
				return // a number that is too long
			}
			p = append(p, Point{c.t.at, c.s.at, math.Float64frombits(binary.LittleEndian.Uint64(c.values[8*len(p):]))})
		}
		if len(c.times)+len(c.steps) > 0 || len(p) != n {
			t.Fatalf("%d points of %d, %d bytes are left", len(p), n, len(c.times)+len(c.steps))
		}
		again := source{bytes: encodeChunk(nil, p)}
		if !again.split(again.bytes[chunkHeader:], n) {
			t.Fatalf("%v is written as %x", p, again.bytes)
		}
		for i := range p {
			if err := again.advance(); err != nil || !same(again.head, p[i]) {
				t.Fatalf("point %d of %v is read as %v: %v", i, p, again.head, err)
			}
		}
	})
}
