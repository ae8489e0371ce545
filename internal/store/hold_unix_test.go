//go:build unix

package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestSecondServerOfFileIsRefused: a database file has one server at a time, whatever path leads to
// it, and another when that has ended.
func TestSecondServerOfFileIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "one", "berth.db")
	first, err := member(t, "sqlite:"+path, "one", "a")
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
		if _, err := member(t, "sqlite:"+other, "one", "b"); berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "is used by server a of one:") {
			t.Errorf("%s: %v", other, err)
		}
	}
	must(t, first, writeOne("b"))
	first.Close()
	third, err := member(t, "sqlite:"+path, "one", "c")
	if err != nil {
		t.Fatal(err)
	}
	must(t, third, writeOne("c"))
}
