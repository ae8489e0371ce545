package points

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestReaderIsTheSet: whatever the order in which points come, a reader has each once and sorted,
// also after they were merged and opened again, and a second time.
func TestReaderIsTheSet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, change := range map[string]func(p []Point) []Point{
		"in order": func(p []Point) []Point { return p },
		"far apart": func(p []Point) []Point {
			for i := range p {
				p[i].Timestamp, p[i].Step = p[i].Timestamp*1e6, p[i].Step*1e12-7e14
			}
			return p
		},
		"repeated":             func(p []Point) []Point { return slices.Concat(p, p[100:900], p[:3]) },
		"two values of a step": func(p []Point) []Point { return append(p, Point{p[999].Timestamp, p[999].Step, math.NaN()}) },
		"shuffled": func(p []Point) []Point {
			rng.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
			return p
		},
		"at one time": func(p []Point) []Point {
			for i := range p {
				p[i].Timestamp = 7
			}
			rng.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := make([]Point, 1000)
			at := int64(1700000000)
			for i := range p {
				at += rng.Int64N(300)
				p[i] = Point{at, int64(i), rng.Float64()}
			}
			p = change(p)
			s := open(t, dir, Options{JournalSize: 1 << 10, NoSync: true})
			for batch := range slices.Chunk(p, 50) {
				var e []Entry
				for _, q := range batch {
					e = append(e, Entry{"r", "m", q})
				}
				if err := s.Append(e); err != nil {
					t.Fatal(err)
				}
			}
			want := tidy(slices.Clone(p))
			for range 2 { // as it was written, and as it was opened again
				r := s.Reader("r", "m")
				for range 2 {
					got, err := all(r)
					if err != nil || !slices.EqualFunc(got, want, same) {
						t.Fatalf("%d points of %d, or others: %v", len(got), len(want), err)
					}
					r.Rewind()
				}
				if r.Most() < int64(len(want)) {
					t.Fatalf("at most %d points of %d", r.Most(), len(want))
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir, Options{})
			}
			if n, err := s.Reader("r", "none").Next(make([]Point, 1)); n != 0 || err != nil {
				t.Fatalf("a series that is not there: %d points, %v", n, err)
			}
		})
	}
}

// TestReaderHasFewChunks: of a long series a reader has few chunks in memory, also of one whose
// points all have the same time, and after segments were merged.
func TestReaderHasFewChunks(t *testing.T) {
	const total = 20 * maxChunk
	for name, point := range map[string]func(i int64) Point{
		"in order":    func(i int64) Point { return Point{i, i, 1} },
		"at one time": func(i int64) Point { return Point{7, i, 1} },
		"at one step": func(i int64) Point { return Point{7, 7, float64(i)} },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), Options{JournalSize: 200 << 10, NoSync: true})
			for i := int64(0); i < total; i += 1000 {
				var e []Entry
				for k := i; k < min(i+1000, total); k++ {
					e = append(e, Entry{"r", "m", point(k)})
				}
				if err := s.Append(e); err != nil {
					t.Fatal(err)
				}
				s.compacted.Wait()
			}
			r := s.Reader("r", "m")
			if len(r.chunks) < total/maxChunk {
				t.Fatalf("%d chunks of %d points: one is too long", len(r.chunks), total)
			}
			got, most, p := 0, 0, make([]Point, 1000)
			for {
				n, err := r.Next(p)
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
				got, most = got+n, max(most, len(r.open)+len(r.spare))
			}
			if got != total || most > 4 {
				t.Fatalf("%d points, with up to %d of %d chunks in memory", got, most, len(r.chunks))
			}
		})
	}
}

// TestDamagedChunk: a reader says that a chunk is damaged, and gives the points before it.
func TestDamagedChunk(t *testing.T) {
	s := open(t, t.TempDir(), Options{JournalSize: 1, NoSync: true})
	fillSegments(t, s, 0, 3)
	chunks := s.owners["r"].find("m").chunks
	damage(t, s.path(2, "seg"), chunks[1].at+chunkHeader)
	for range 2 {
		r := s.Reader("r", "m")
		if got, err := all(r); len(got) != 1 || err == nil {
			t.Fatalf("%d points, %v", len(got), err)
		}
		if n, err := r.Next(make([]Point, 1)); n != 0 || err == nil {
			t.Fatalf("after the error: %d points, %v", n, err)
		}
	}
}

// TestOldSegment: segments without the first points of chunks are read, and merged with others.
func TestOldSegment(t *testing.T) {
	dir := t.TempDir()
	b := []byte(oldSegmentMark)
	var list []byte
	for _, p := range [][]Point{{{5, 5, 5}, {6, 6, 6}}, {{0, 0, math.NaN()}, {1, 1, 1}, {6, 6, 6}}} { // in any order
		at := len(b)
		b = encodeChunk(b, p)
		list = appendText(appendText(list, "r"), "m")
		for _, n := range []int{at, len(b) - at, len(p)} {
			list = binary.AppendUvarint(list, uint64(n))
		}
		list = appendPoint(list, p[len(p)-1])
	}
	list = append([]byte{2}, list...)
	at := len(b)
	b = append(b, list...)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(list, castagnoli()))
	if err := os.WriteFile(filepath.Join(dir, "00000001.seg"), append(b, oldSegmentMark...), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{JournalSize: 1, NoSync: true})
	if got := history(t, s, "r", "m"); len(got) != 4 || got[3].Step != 6 {
		t.Fatalf("the history is %v", got)
	}
	fillSegments(t, s, 0, 2*mergeAt)
	if _, err := os.Stat(filepath.Join(dir, "00000001.seg")); err == nil {
		t.Fatal("it was not merged")
	}
	wantSteps(t, s, 2*mergeAt) // the old points are among the new ones
}
