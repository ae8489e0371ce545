package cache_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// elsewhere is storage that knows no hashes.
type elsewhere struct {
	files   map[string]string
	tags    map[string]string
	fetched []string
}

func (e *elsewhere) place(scope string) cache.Place {
	p := cache.Place{Scope: scope}
	for name, text := range e.files {
		p.Files = append(p.Files, cache.PlaceFile{Path: name, Size: int64(len(text)), Tag: e.tags[name]})
	}
	slices.SortFunc(p.Files, func(a, b cache.PlaceFile) int {
		if a.Path < b.Path {
			return -1
		}
		return 1
	})
	files := p.Files
	p.Fetch = func(_ context.Context, want []int, to func(int) string) error {
		for _, i := range want {
			e.fetched = append(e.fetched, files[i].Path)
			if err := os.WriteFile(to(i), []byte(e.files[files[i].Path]), 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	return p
}

// TestPlace: a place is fetched once, then what is changed of it; another scope does not get what
// was fetched for this one.
func TestPlace(t *testing.T) {
	c, err := cache.Open(t.TempDir(), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	e := &elsewhere{files: map[string]string{"a": "alpha", "d/b": "beta"}, tags: map[string]string{"a": "1", "d/b": "1"}}
	get := func(scope string, want map[string]string, fetched ...string) {
		t.Helper()
		e.fetched = nil
		use, err := c.GetPlace(t.Context(), e.place(scope))
		if err != nil {
			t.Fatal(err)
		}
		defer use.Close()
		for name, text := range want {
			if b, err := os.ReadFile(filepath.Join(use.Dir, name)); err != nil || string(b) != text {
				t.Errorf("%s is %q, %v", name, b, err)
			}
		}
		if slices.Sort(e.fetched); !slices.Equal(e.fetched, fetched) {
			t.Errorf("%q was fetched, not %q", e.fetched, fetched)
		}
	}
	get("mine", e.files, "a", "d/b")
	get("mine", e.files)
	e.files["a"], e.tags["a"] = "gamma", "2"
	get("mine", e.files, "a")
	get("another", e.files, "a", "d/b")
	// Without tags nothing is known to be as it was.
	e.tags["a"] = ""
	get("mine", e.files, "a")
	get("mine", e.files, "a")
	// What the storage sends must be as long as it said.
	e.tags["a"] = "3"
	p := e.place("mine")
	p.Files[0].Size++
	if _, err := c.GetPlace(t.Context(), p); berth.CodeOf(err) != berth.Internal {
		t.Errorf("a file that is too short: %v", err)
	}
}

// TestWrongRecord: where the cache's own record of a place has a hash that is not the file's, or
// cannot be read, the files are fetched again, and the storage is not blamed.
func TestWrongRecord(t *testing.T) {
	for _, wrong := range []func(text string) string{
		func(text string) string { return strings.Repeat("0", 64) + text[64:] },
		func(text string) string { return text[:30] },
		func(string) string { return "\x00\x00 %s\n" },
	} {
		dir := t.TempDir()
		c := open(t, dir, cache.Options{})
		e := &elsewhere{files: map[string]string{"a": "alpha"}, tags: map[string]string{"a": "1"}}
		use, err := c.GetPlace(t.Context(), e.place("x"))
		if err != nil {
			t.Fatal(err)
		}
		use.Close()
		records, err := filepath.Glob(filepath.Join(dir, "places", "*"))
		if err != nil || len(records) != 1 {
			t.Fatal(records, err)
		}
		text, err := os.ReadFile(records[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{"names", "trees", "content"} {
			if err := os.RemoveAll(filepath.Join(dir, d)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(records[0], []byte(wrong(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			use, err := c.GetPlace(t.Context(), e.place("x"))
			if err != nil {
				t.Fatal(err)
			}
			holds(t, use.Dir, e.files)
			use.Close()
		}
	}
}
