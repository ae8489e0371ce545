//go:build unix

package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestSecondServerOfFileIsRefused: a database file has one server at a time, whatever path leads to it, and another when that has ended.
func TestSecondServerOfFileIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "one", "berth.db")
	first, err := lead(t, "sqlite:"+path, "the first server")
	if err != nil {
		t.Fatal(err)
	}
	must(t, first, writeOne("a"))
	if err := os.Symlink(filepath.Join(dir, "one"), filepath.Join(dir, "folder")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "file.db")); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{path, filepath.Join(dir, "folder", "berth.db"), filepath.Join(dir, "file.db")} {
		if _, err := lead(t, "sqlite:"+other, "the second"); berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "is used by the first server:") {
			t.Errorf("%s: %v", other, err)
		}
	}
	must(t, first, writeOne("b"))
	first.Close()
	third, err := lead(t, "sqlite:"+path, "the third")
	if err != nil {
		t.Fatal(err)
	}
	must(t, third, writeOne("c"))
}
