package data_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// nest makes folders in each other, each with a file f, and returns the paths of the folders.
func nest(t *testing.T, dir, name string, depth int) (paths []string) {
	t.Helper()
	root, err := os.OpenRoot(dir) // which takes paths longer than the system does
	if err != nil {
		t.Fatal(err)
	}
	rel := ""
	for range depth {
		next, err := root.OpenRoot(".")
		if err == nil {
			err = errors.Join(next.Mkdir(name, 0o700), next.WriteFile(name+"/f", []byte("x"), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		root.Close()
		if root, err = next.OpenRoot(name); err != nil {
			t.Fatal(err)
		}
		next.Close()
		rel = strings.TrimPrefix(rel+"/"+name, "/")
		paths = append(paths, rel)
	}
	root.Close()
	return paths
}

// TestDeep: folders that are nested deeper than storage can name are named and not entered.
func TestDeep(t *testing.T) {
	const why = "is nested too deeply (a path has at most 100 folders and 1,024 characters)"
	for _, tt := range []struct {
		name         string
		part         string
		depth, taken int
	}{
		{"many", "d", 120, 100},
		{"long", strings.Repeat("é", 120), 20, 8}, // 967 characters, 1927 bytes; the next has 1088
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			paths := nest(t, dir, tt.part, tt.depth)
			d := opened(t, dir)
			var seen []string
			complete, err := d.Scan(t.Context(), func(rel string, _ data.State) error {
				seen = append(seen, rel)
				return nil
			})
			if err != nil || !complete {
				t.Fatal(complete, err)
			}
			var want []string
			for _, p := range paths[:tt.taken] {
				want = append(want, p+"/f")
			}
			slices.Sort(want)
			slices.Sort(seen)
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Errorf("scanned: %s", diff)
			}
			s := blobtest.New(t)
			left, err := client(t).PutFolder(t.Context(), d, s.At("o"), nil, new(data.Total))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]data.LeftOut{{Name: paths[tt.taken], Why: why}}, left); diff != "" {
				t.Error(diff)
			}
			if all := s.All("o/"); len(all) != tt.taken {
				t.Errorf("%d files were sent, want %d", len(all), tt.taken)
			}
			err = client(t).Folder(t.Context(), "file://"+dir, t.TempDir(), new(data.Total))
			if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), why) {
				t.Errorf("copied: %v", err)
			}
		})
	}
}

// TestWalkCanceled: folders without files are not walked through after the end of the context.
func TestWalkCanceled(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := opened(t, dir)
	if _, err := d.Scan(ctx, func(string, data.State) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("scan: %v", err)
	}
	s := blobtest.New(t)
	if _, err := client(t).PutFolder(ctx, d, s.At("o"), nil, new(data.Total)); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
}
