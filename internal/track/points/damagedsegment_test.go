package points

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedDirectory: a segment whose directory is damaged is set aside; the points of others are
// there, and more come.
func TestDamagedDirectory(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	o := Options{JournalSize: 1, NoSync: true, Log: slog.New(slog.NewTextHandler(&log, nil))}
	s := open(t, dir, o)
	fillSegments(t, s, 0, 3)
	for i, n := range []uint64{2, 3} { // in the middle, the last
		path := s.path(n, "seg")
		s.Close()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		b := damage(t, path, info.Size()-int64(segmentTrailer)-3)
		log.Reset()
		s = open(t, dir, o)
		if kept, err := os.ReadFile(path + ".damaged"); err != nil || !bytes.Equal(kept, b) || !strings.Contains(log.String(), path+".damaged") {
			t.Errorf("%d: %v; the log: %s", n, err, log.String())
		}
		if got := history(t, s, "r", "m"); len(got) != 2-i || got[0].Step != 0 {
			t.Errorf("%d: left are %v", n, got)
		}
	}
	fillSegments(t, s, 3, 5)
	s.Close()
	if got := history(t, open(t, dir, o), "r", "m"); len(got) != 3 {
		t.Errorf("then there are %v", got)
	}
}

// TestFiles: copies of damaged files are not listed, which only the operator can delete, nor what a
// merge has not finished.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if got, err := Files(filepath.Join(dir, "none")); err != nil || got != nil {
		t.Errorf("of no directory: %v, %v", got, err)
	}
	for _, name := range []string{
		"00000001-00000003.seg", "00000004.seg", "00000005.log", "00000004.seg.damaged", "00000004.seg.damaged2", "00000003.log.damaged",
		"00000001-00000004.seg.new123", "notes.txt",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "00000006.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Files(dir)
	var names []string
	for _, f := range got {
		names = append(names, f.Name())
	}
	if err != nil || strings.Join(names, " ") != "00000001-00000003.seg 00000004.seg 00000005.log" {
		t.Errorf("%v, %v", names, err)
	}
}

// TestDamagedMergedSegment: what a damaged segment was made of is read if a crash left it there.
func TestDamagedMergedSegment(t *testing.T) {
	dir := t.TempDir()
	o := Options{JournalSize: 1, NoSync: true}
	s := open(t, dir, o)
	fillSegments(t, s, 0, mergeAt-1)
	before := segmentsOf(t, dir)
	fillSegments(t, s, mergeAt-1, mergeAt)
	s.Close()
	for path, b := range segmentsOf(t, dir) {
		damage(t, path, int64(len(b)-segmentTrailer-3))
	}
	for path, b := range before {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantSteps(t, open(t, dir, o), mergeAt-1)
}

// TestMergeOverDamage: a damaged chunk costs its own points. Segments are merged, and owners
// dropped, without it; the log says so once, and the segment is kept.
func TestMergeOverDamage(t *testing.T) {
	for _, drop := range []string{"", "r", "r1", "r2"} { // the chunk's owner, another in its segment, one elsewhere
		t.Run("drop "+drop, func(t *testing.T) {
			dir := t.TempDir()
			var log strings.Builder
			s := open(t, dir, Options{JournalSize: 1, NoSync: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
			fillSegments(t, s, 0, mergeAt-1)
			path := s.path(2, "seg")
			b := damage(t, path, int64(len(segmentMark)+chunkHeader)) // step 1 of m of r
			points := mergeAt - 2
			if drop != "" {
				if done, err := s.Drop([]string{drop}); !done || err != nil {
					t.Fatalf("%v, %v", done, err)
				}
				if n := len(history(t, s, drop, "k")); n != 0 {
					t.Errorf("%d points of %s are left", n, drop)
				}
			}
			if drop == "r" {
				points = 0
			}
			fillSegments(t, s, mergeAt-1, 2*mergeAt)
			if n := len(segmentsOf(t, dir)); n >= mergeAt {
				t.Errorf("%d segments: nothing was merged", n)
			}
			s.Close()
			s = open(t, dir, Options{NoSync: true})
			points += mergeAt + 1
			if x, _ := s.Last("r", "m"); len(history(t, s, "r", "m")) != points || x.Count != int64(points) {
				t.Errorf("%+v, want %d", x, points)
			}
			if drop == "r" {
				return // nobody read the chunk
			}
			says := fmt.Sprintf("segment=%s run=r key=m points=1 copy=%s.damaged", path, path)
			if kept, err := os.ReadFile(path + ".damaged"); err != nil || !bytes.Equal(kept, b) || strings.Count(log.String(), says) != 1 {
				t.Errorf("the copy: %v; the log: %s", err, log.String())
			}
		})
	}
}
