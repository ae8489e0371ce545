package cache_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
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
