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

// TestSegmentsAreMerged: however many journals were written, few segments are left, and every point
// is there once.
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

// TestCrashBeforeMergedSegmentsWereRemoved: the old segments beside the one they became are
// removed, and count nothing.
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
	r := s.Reader("r", "m")
	fillSegments(t, s, mergeAt-1, mergeAt)
	for range 2 {
		got, err := all(r)
		if err != nil || len(got) != mergeAt-1 {
			t.Fatalf("read %d points: %v", len(got), err)
		}
		r.Rewind()
	}
	s.Close()
}

// TestDrop: the points of owners that are dropped are gone from the files, those in the journal
// too; others are not.
func TestDrop(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{JournalSize: 1, NoSync: true})
	fillSegments(t, s, 0, 30)
	s.o.JournalSize = 1 << 20
	fillSegments(t, s, 30, 35)
	if done, err := s.Drop([]string{"r3", "none"}); !done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	check := func() {
		t.Helper()
		wantSteps(t, s, 35)
		for i := range 5 {
			name := fmt.Sprint("r", i)
			if n := len(history(t, s, name, "k")); n != map[bool]int{true: 0, false: 7}[i == 3] {
				t.Errorf("%s has %d points", name, n)
			}
		}
	}
	check()
	s.Close()
	s = open(t, dir, Options{NoSync: true})
	check()
	fillSegments(t, s, 35, 36)
	wantSteps(t, s, 36)
	s.Close()
}

// TestMergeKeepsUnknownOwners: a merge leaves nothing out by itself.
func TestMergeKeepsUnknownOwners(t *testing.T) {
	s := open(t, t.TempDir(), Options{JournalSize: 1, NoSync: true})
	fillSegments(t, s, 0, 40)
	for i := range 5 {
		if n := len(history(t, s, fmt.Sprint("r", i), "k")); n != 8 {
			t.Errorf("r%d has %d points", i, n)
		}
	}
	s.Close()
}

// TestMergeEnds: a merge is given up between two series when another process has the points, and
// when the set is closed; nothing is lost.
func TestMergeEnds(t *testing.T) {
	dir := t.TempDir()
	asked, most := 0, 1000
	s := open(t, dir, Options{JournalSize: 1, NoSync: true, Leads: func() bool { asked++; return asked < most }})
	fillSegments(t, s, 0, mergeAt-1)
	most = 3
	fillSegments(t, s, mergeAt-1, mergeAt)
	if n := len(segmentsOf(t, dir)); n != mergeAt || asked != 3 {
		t.Fatalf("%d segments, asked %d times: the merge went on", n, asked)
	}
	wantSteps(t, s, mergeAt)
	if done, err := s.Drop([]string{"r1"}); done || err != nil {
		t.Fatalf("dropped without leading: %v, %v", done, err)
	}
	most = 1000
	s.closing.Store(true)
	if err := s.merge(); err != nil {
		t.Fatal(err)
	}
	if n := len(segmentsOf(t, dir)); n != mergeAt {
		t.Fatalf("%d segments: a merge went on in a set that is closed", n)
	}
	s.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new*")); left != nil {
		t.Fatalf("left over: %v", left)
	}
}

// TestDropGivesSpaceBack: what points took up on the disk is free again when their owners are
// dropped.
func TestDropGivesSpaceBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{JournalSize: 1 << 10, NoSync: true})
	for i := range int64(20) {
		var batch []Entry
		for k := range int64(500) {
			batch = append(batch, Entry{"gone", "m", Point{i*500 + k, i*500 + k, float64(k)}})
		}
		if err := s.Append(append(batch, Entry{"kept", "m", Point{i, i, 1}})); err != nil {
			t.Fatal(err)
		}
		s.compacted.Wait()
	}
	onDisk := func() (n int64) {
		t.Helper()
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			n += info.Size()
		}
		return n
	}
	before := onDisk()
	if done, err := s.Drop([]string{"gone"}); !done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	if after := onDisk(); before < 10_000*8 || after > before/20 {
		t.Errorf("%d bytes are left of %d", after, before)
	}
	if n := len(history(t, s, "kept", "m")); n != 20 {
		t.Errorf("%d points are kept", n)
	}
	s.Close()
}
