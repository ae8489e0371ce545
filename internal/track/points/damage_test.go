package points

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// TestDamageInTheMiddle: a bad frame with good ones behind it costs its own points, and a copy of
// the journal is kept.
func TestDamageInTheMiddle(t *testing.T) {
	for _, at := range []int64{0, 4, frameHeader + 3} { // its length, its sum, its records
		dir := t.TempDir()
		s := open(t, dir, Options{NoSync: true})
		var starts []int64
		for i := range int64(10) {
			if s.journal != nil {
				starts = append(starts, s.journal.size)
			}
			if err := s.Append([]Entry{{"r", "m", Point{i, i, 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		path := s.path(1, "log")
		s.Close()
		b := damage(t, path, starts[4]+at)
		for range 2 {
			s = open(t, dir, Options{NoSync: true})
			if got := history(t, s, "r", "m"); len(got) != 9 {
				t.Errorf("byte %d of a frame: %d points, want 9", at, len(got))
			}
			s.Close()
		}
		if kept, err := os.ReadFile(path + ".damaged"); err != nil || !bytes.Equal(kept, b) {
			t.Errorf("the copy: %v", err)
		}
	}
}

// damage changes a byte of a file.
func damage(t *testing.T, path string, at int64) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x55
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDamagedName: points whose name was in a damaged frame are counted in the log, and a second
// journal of the same number gets a copy of its own.
func TestDamagedName(t *testing.T) {
	dir := t.TempDir()
	for _, copied := range []string{".damaged", ".damaged2"} {
		s := open(t, dir, Options{NoSync: true})
		for i := range int64(10) {
			if err := s.Append([]Entry{{"r" + copied, "m", Point{i, i, 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		path := s.path(1, "log")
		s.Close()
		b := damage(t, path, frameHeader+3)
		var log strings.Builder
		s = open(t, dir, Options{NoSync: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if got := s.Latest("r" + copied); got != nil {
			t.Errorf("the points are those of %v", got)
		}
		s.Close()
		if !strings.Contains(log.String(), "nameless=9 ") || !strings.Contains(log.String(), path+copied) {
			t.Errorf("the log: %s", log.String())
		}
		if kept, err := os.ReadFile(path + copied); err != nil || !bytes.Equal(kept, b) {
			t.Errorf("the copy: %v", err)
		}
	}
}

// TestDamagedNameAfterReopen: points never get into another series, also where the set was opened
// again between the two.
func TestDamagedNameAfterReopen(t *testing.T) {
	dir, o := t.TempDir(), Options{NoSync: true}
	add := func(s *Set, owner, key string, i int64) {
		t.Helper()
		if err := s.Append([]Entry{{owner, key, Point{i, i, 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir, o)
	add(s, "gone", "m", 0)
	add(s, "r", "z", 0) // it has the second id, and the first after the other has gone
	if done, err := s.Drop([]string{"gone"}); !done || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	add(s, "r", "z", 1)
	s.Close()
	s = open(t, dir, o)
	at := int64(0)
	if s.journal != nil {
		at = s.journal.size
	}
	add(s, "r", "a", 2)
	add(s, "r", "a", 3)
	path := s.path(s.number, "log")
	s.Close()
	damage(t, path, at+frameHeader+3)
	s = open(t, dir, o)
	for key, want := range map[string]int{"z": 2, "a": 0} {
		if got := history(t, s, "r", key); len(got) != want {
			t.Errorf("%s has %v", key, got)
		}
	}
}

// TestCopyAsideIsWhole: a copy that was cut short is not taken for one.
func TestCopyAsideIsWhole(t *testing.T) {
	journal := t.TempDir() + "/00000001.log"
	if err := os.WriteFile(journal+".damaged.new", []byte("a longer beginning of a copy"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		path, err := copyAside(journal, []byte("whole"), true)
		if err != nil || path != journal+".damaged" {
			t.Fatalf("%s, %v", path, err)
		}
		if kept, err := os.ReadFile(path); err != nil || string(kept) != "whole" {
			t.Errorf("the copy is %q, %v", kept, err)
		}
	}
}

// TestCompactionIsTriedAgain: after a segment could not be written, a later append writes it.
func TestCompactionIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{JournalSize: 1, NoSync: true})
	s.pause = 0
	seg := s.path(1, "seg")
	if err := os.MkdirAll(seg+"/in the way", 0o700); err != nil {
		t.Fatal(err)
	}
	add := func(i int64) {
		t.Helper()
		if err := s.Append([]Entry{{"r", "m", Point{i, i, 1}}}); err != nil {
			t.Fatal(err)
		}
		s.compacted.Wait()
	}
	add(1)
	if !s.failed {
		t.Fatal("the segment was written")
	}
	if err := os.RemoveAll(seg); err != nil {
		t.Fatal(err)
	}
	add(2)
	add(3)
	if s.failed || s.sealed {
		t.Errorf("failed %v, sealed %v", s.failed, s.sealed)
	}
	if info, err := os.Stat(seg); err != nil || info.IsDir() {
		t.Errorf("the segment: %v", err)
	}
	if got := history(t, s, "r", "m"); len(got) != 3 {
		t.Errorf("the history is %v", got)
	}
}
