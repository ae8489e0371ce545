package cache_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// TestGatheredStays: what is gathered for a place stays however long that takes, also while the
// storage is away meanwhile, and goes when nobody has worked on the place for long.
func TestGatheredStays(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	c.TendEvery(time.Millisecond)
	e := &elsewhere{files: map[string]string{}, tags: map[string]string{}}
	for i := range 1500 { // more than a batch
		name := fmt.Sprintf("f%04d", i)
		e.files[name], e.tags[name] = name, "1"
	}
	p := e.place("x")
	batch, away := 0, true
	fetch := p.Fetch
	p.Fetch = func(ctx context.Context, want []int, to func(int) string) error {
		if batch++; batch == 1 {
			return fetch(ctx, want, to)
		}
		age(t, dir, 2*time.Hour)
		for range 10_000 { // it is worked on, which shows
			if young(t, dir) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		c.SweepContent()
		if away {
			away = false
			return berth.Errorf(berth.Unavailable, "the storage is away")
		}
		return fetch(ctx, want, to)
	}
	if _, err := c.GetPlace(t.Context(), p); berth.CodeOf(err) != berth.Unavailable {
		t.Fatal(err)
	}
	c.SweepContent() // another job has ended meanwhile
	use, err := c.GetPlace(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	use.Close()
	if n := len(e.fetched); n != len(e.files) {
		t.Errorf("%d files were fetched for %d", n, len(e.files))
	}

	for _, name := range []string{"trees", "names"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	age(t, dir, 2*time.Hour)
	c.SweepContent()
	if left := contents(t, dir); len(left) > 0 {
		t.Errorf("%d contents are left that nobody wants", len(left))
	}
}

// TestRecordOfTheKilled: a runner that is killed while it gathers leaves the record of the batches
// that came, and the next one fetches the others only.
func TestRecordOfTheKilled(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, cache.Options{})
	e := &elsewhere{files: map[string]string{}, tags: map[string]string{}}
	for i := range 1500 {
		name := fmt.Sprintf("f%04d", i)
		e.files[name], e.tags[name] = name, "1"
	}
	p := e.place("x")
	batch, fetch, left := 0, p.Fetch, filepath.Join(t.TempDir(), "left")
	p.Fetch = func(ctx context.Context, want []int, to func(int) string) error {
		if batch++; batch == 2 {
			if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
				t.Error(err)
			}
		}
		return fetch(ctx, want, to)
	}
	use, err := c.GetPlace(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	use.Close()
	records, err := filepath.Glob(filepath.Join(left, "places", "*"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	f, err := os.OpenFile(records[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(strings.Repeat("0", 64) + ` 5 "1" "f1`); err != nil { // in the middle of one
		t.Fatal(err)
	}
	f.Close()
	e.fetched = nil
	next := open(t, left, cache.Options{})
	if use, err = next.GetPlace(t.Context(), e.place("x")); err != nil {
		t.Fatal(err)
	}
	use.Close()
	if n := len(e.fetched); n != 500 {
		t.Errorf("%d files were fetched again, not 500", n)
	}
}

// TestRecordOfAnother: a job that fails to gather a place leaves the record of one that did.
func TestRecordOfAnother(t *testing.T) {
	dir := t.TempDir()
	e := &elsewhere{files: map[string]string{"a": "alpha", "b": "beta"}, tags: map[string]string{"a": "1", "b": "1"}}
	p := e.place("x")
	p.Fetch = func(ctx context.Context, _ []int, _ func(int) string) error {
		use, err := open(t, dir, cache.Options{}).GetPlace(ctx, e.place("x"))
		if err != nil {
			return err
		}
		use.Close()
		return berth.Errorf(berth.Unavailable, "the storage is away")
	}
	c := open(t, dir, cache.Options{})
	if _, err := c.GetPlace(t.Context(), p); berth.CodeOf(err) != berth.Unavailable {
		t.Fatal(err)
	}
	for _, name := range []string{"trees", "names"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	e.fetched = nil
	use, err := c.GetPlace(t.Context(), e.place("x"))
	if err != nil {
		t.Fatal(err)
	}
	use.Close()
	if len(e.fetched) > 0 {
		t.Errorf("%q were fetched again", e.fetched)
	}
}

// contents are the files of the cache's contents.
func contents(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "content", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// age makes contents and records of places older.
func age(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, "places", "*"))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-by)
	for _, path := range append(records, contents(t, dir)...) {
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// young says whether a record of a place was touched lately.
func young(t *testing.T, dir string) bool {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, "places", "*"))
	if err != nil || len(records) == 0 {
		t.Fatal(records, err)
	}
	info, err := os.Stat(records[0])
	return err == nil && time.Since(info.ModTime()) < time.Hour
}
