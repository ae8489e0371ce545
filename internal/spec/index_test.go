package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/spec"
)

// TestUnchangedFolderIsNotRead: the hash of a folder that looks the same to stat comes from the
// index, and that of one that was changed in any way from its files.
func TestUnchangedFolderIsNotRead(t *testing.T) {
	root, index := t.TempDir(), t.TempDir()
	write(t, root, map[string]string{"a.py": "one", "sub/b.py": "two"})
	u := spec.Upload{Path: root, Index: index}
	take := func() string {
		t.Helper()
		f, err := u.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		return f.Hash
	}
	read := func() string {
		t.Helper()
		f, err := spec.Upload{Path: root}.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		return f.Hash
	}
	known := func() (file, text string) {
		t.Helper()
		for { // files that were just written are read until the clock has moved on
			take()
			list, err := os.ReadDir(index)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 1 {
				file = filepath.Join(index, list[0].Name())
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(b), read()) {
					return file, string(b)
				}
			}
		}
	}
	// The index says something else than the files: who believes it has not read them.
	lie := strings.Repeat("0", 64)
	file, text := known()
	if err := os.WriteFile(file, []byte(strings.Replace(text, read(), lie, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := take(); got != lie {
		t.Errorf("an unchanged folder was read: %s", got)
	}
	changes := map[string]func() error{
		"content": func() error {
			info, err := os.Stat(filepath.Join(root, "a.py"))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(root, "a.py"), []byte("eno"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(filepath.Join(root, "a.py"), info.ModTime(), info.ModTime())
		},
		"new file":     func() error { return os.WriteFile(filepath.Join(root, "c"), nil, 0o644) },
		"removed file": func() error { return os.Remove(filepath.Join(root, "sub/b.py")) },
		"ignore file":  func() error { return os.WriteFile(filepath.Join(root, ".amlignore"), []byte("c\n"), 0o644) },
	}
	for _, what := range []string{"content", "new file", "removed file", "ignore file"} {
		if err := changes[what](); err != nil {
			t.Fatal(err)
		}
		if got := take(); got != read() {
			t.Errorf("after a change of %s the hash is %s", what, got)
		}
	}
	known()
}
