package points

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// segmentsOf is the names and contents of the segments in a directory.
func segmentsOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		if out[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// fillSegments appends so that each point is in a segment of its own before the next one comes.
func fillSegments(t *testing.T, s *Set, from, to int64) {
	t.Helper()
	for i := from; i < to; i++ {
		v := float64(i)
		if i%7 == 0 {
			v = math.NaN()
		}
		err := s.Append([]Entry{{"r", "m", Point{i, i, v}}, {fmt.Sprint("r", i%5), "k", Point{i, i, 1}}, {"r", "same", Point{1, 1, 1}}})
		if err != nil {
			t.Fatal(err)
		}
		s.compacted.Wait()
	}
}

func wantSteps(t *testing.T, s *Set, n int64) {
	t.Helper()
	got := history(t, s, "r", "m")
	if int64(len(got)) != n {
		t.Fatalf("%d points, want %d", len(got), n)
	}
	for i, p := range got {
		if p.Step != int64(i) || math.IsNaN(p.Value) != (i%7 == 0) {
			t.Fatalf("point %d is %v", i, p)
		}
	}
	if x, ok := s.Last("r", "m"); !ok || x.Count != n || x.Latest.Step != n-1 {
		t.Fatalf("the summary is %+v", x)
	}
}

// TestSegmentsAreMerged: however many journals were written, few segments are left, and every point is there once.
func TestSegmentsAreMerged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{JournalSize: 1, NoSync: true})
	fillSegments(t, s, 0, 200)
	if n := len(segmentsOf(t, dir)); n > mergeAt {
		t.Fatalf("there are %d segments", n)
	}
	wantSteps(t, s, 200)
	if got := history(t, s, "r", "same"); len(got) != 1 {
		t.Fatalf("a point that was repeated is there %d times", len(got))
	}
	s.Close()
	s = open(t, dir, Options{JournalSize: 1, NoSync: true})
	wantSteps(t, s, 200)
	fillSegments(t, s, 200, 220)
	wantSteps(t, s, 220)
	s.Close()
}

// TestCrashBeforeMergedSegmentsWereRemoved: the old segments beside the one they became are removed, and count nothing.
func TestCrashBeforeMergedSegmentsWereRemoved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{JournalSize: 1, NoSync: true})
	fillSegments(t, s, 0, mergeAt-1)
	before := segmentsOf(t, dir)
	if len(before) != mergeAt-1 {
		t.Fatalf("there are %d segments", len(before))
	}
	fillSegments(t, s, mergeAt-1, mergeAt)
	s.Close()
	if n := len(segmentsOf(t, dir)); n != 1 {
		t.Fatalf("%d segments after the merge", n)
	}
	for name, b := range before {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	torn := filepath.Join(dir, "00000001-00000099.seg.new1")
	if err := os.WriteFile(torn, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{JournalSize: 1, NoSync: true})
	wantSteps(t, s, mergeAt)
	if n := len(segmentsOf(t, dir)); n != 1 {
		t.Fatalf("%d segments after the next start", n)
	}
	if _, err := os.Stat(torn); err == nil {
		t.Fatal("a merge that was not finished is left over")
	}
	s.Close()
}

// TestReadWhileMerging: who reads a history while its segments are merged reads all of it.
func TestReadWhileMerging(t *testing.T) {
	s := open(t, t.TempDir(), Options{JournalSize: 1, NoSync: true})
	fillSegments(t, s, 0, mergeAt-1)
	x := s.owners["r"].find("m")
	chunks := x.chunks
	fillSegments(t, s, mergeAt-1, mergeAt)
	var got []Point
	for _, c := range chunks {
		var err error
		if got, err = c.read(got); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != mergeAt-1 {
		t.Fatalf("read %d points", len(got))
	}
	s.Close()
}

// TestCollect: points of an owner that is not kept are gone from the files, others are not.
func TestCollect(t *testing.T) {
	dir := t.TempDir()
	gone := ""
	s := open(t, dir, Options{JournalSize: 1, NoSync: true, Keep: func(owner string) bool { return owner != gone }})
	fillSegments(t, s, 0, 30)
	gone = "r3"
	if err := s.Collect(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, dir, Options{NoSync: true})
	wantSteps(t, s, 30)
	for i := range 5 {
		name := fmt.Sprint("r", i)
		if n := len(history(t, s, name, "k")); n != map[bool]int{true: 0, false: 6}[name == gone] {
			t.Errorf("%s has %d points", name, n)
		}
	}
	s.Close()
}
