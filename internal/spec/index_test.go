package spec_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
		f, err := spec.Upload{Path: root, Index: t.TempDir()}.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if f.HashVersion != spec.IndexedVersion {
			t.Errorf("hash version %d", f.HashVersion)
		}
		return f.Hash
	}
	known := func() (file, text string) {
		t.Helper()
		for { // files that were just written are read until the clock has moved on
			take()
			list, err := filepath.Glob(filepath.Join(index, strings.Repeat("?", 64)))
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 1 {
				file = list[0]
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

// TestOnlyChangedFilesAreRead: of a folder that was changed, the hashes of files that look as they
// did come from the index; a change that leaves size and modification time as they were shows.
func TestOnlyChangedFilesAreRead(t *testing.T) {
	root, index := t.TempDir(), t.TempDir()
	write(t, root, map[string]string{"a.py": "one", "b.py": "two", "sub/c.py": "three"})
	u := spec.Upload{Path: root, Index: index}
	hashes := func() map[string]string {
		t.Helper()
		f, err := u.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		u.Hashes(f)
		all := map[string]string{}
		for _, x := range f.Files {
			all[x.Name] = x.Hash
		}
		return all
	}
	var table string
	for { // files that were just written are read until the clock has moved on
		first := hashes()
		list, err := filepath.Glob(filepath.Join(index, "*.files"))
		if err != nil || len(list) > 1 {
			t.Fatal(list, err)
		}
		if len(list) == 1 {
			b, err := os.ReadFile(list[0])
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(b), ".py") == 3 {
				table = list[0]
				// The table says something else than the files: who believes it has not read them.
				for name, h := range first {
					if name != "a.py" {
						raw, _ := hex.DecodeString(h)
						b = bytes.Replace(b, raw, make([]byte, len(raw)), 1)
					}
				}
				if err := os.WriteFile(table, b, 0o600); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
	}
	info, err := os.Stat(filepath.Join(root, "a.py"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, root, map[string]string{"a.py": "eno"})
	if err := os.Chtimes(filepath.Join(root, "a.py"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	lie := strings.Repeat("0", 64)
	want := map[string]string{"a.py": fmt.Sprintf("%x", sha256.Sum256([]byte("eno"))), "b.py": lie, "sub/c.py": lie}
	if got := hashes(); !maps.Equal(got, want) {
		t.Errorf("hashes %v", got)
	}
	for _, text := range []string{"", "berth files 1\n", "berth files 1\nb.py\x00short", "another format"} {
		if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"a.py", "b.py"} {
			write(t, root, map[string]string{f: text})
		}
		if got := hashes(); got["b.py"] != fmt.Sprintf("%x", sha256.Sum256([]byte(text))) {
			t.Errorf("with a table %q: %v", text, got)
		}
	}
}

// TestPlaces: where a folder was uploaded to is known by workspace, the last two times.
func TestPlaces(t *testing.T) {
	u := spec.Upload{Path: t.TempDir(), Index: t.TempDir()}
	for _, place := range []string{"https://x/1", "https://x/2", "https://x/2", "https://x/3"} {
		u.Sent("ws", place)
	}
	u.Sent("other", "https://x/other")
	if got := u.Places("ws"); !slices.Equal(got, []string{"https://x/3", "https://x/2"}) {
		t.Errorf("places %q", got)
	}
	if got := (spec.Upload{Path: u.Path}).Places("ws"); got != nil {
		t.Errorf("without an index: %q", got)
	}
}

// TestLabel: an upload that is not read keeps its label as long as it looks the same, and has a new
// one when it was changed.
func TestLabel(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"data.bin": "one"})
	u := spec.Upload{Path: filepath.Join(root, "data.bin"), Index: t.TempDir()}
	if err := os.Chmod(u.Path, 0); err != nil { // nobody but root could read it
		t.Fatal(err)
	}
	take := func() string {
		t.Helper()
		f, err := u.List()
		if err == nil {
			err = u.Label(f)
		}
		if err != nil || len(f.Hash) != 2*sha256.Size {
			t.Fatalf("label %q, %v", f.Hash, err)
		}
		return f.Hash
	}
	first := take()
	for again := ""; again != first; again = take() { // until the clock has moved on
		first = again
	}
	if err := os.Chmod(u.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if second := take(); second == first {
		t.Error("a file that was changed has the same label")
	}
}

// TestIndexInTheFolder: an index that is in the folder changes with every upload, and is not part
// of it.
func TestIndexInTheFolder(t *testing.T) {
	root, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Skip(err)
	}
	write(t, root, map[string]string{"a.py": "one", ".cache/berth/snapshots/old": "x", ".cache/other": "y"})
	for _, path := range []string{root, link} {
		u := spec.Upload{Path: path, Index: filepath.Join(root, ".cache/berth/snapshots")}
		f, err := u.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, file := range f.Files {
			names = append(names, file.Name)
		}
		if want := []string{".cache/other", "a.py"}; !slices.Equal(names, want) {
			t.Errorf("%s: got %q, want %q", path, names, want)
		}
	}
}

// TestAgain: files that changed since they were listed are hashed as they are now.
func TestAgain(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"a.py": "one", "b.py": "two", "c.py": "three"})
	u := spec.Upload{Path: root, Index: t.TempDir()}
	f, err := u.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	old := f.Hash
	write(t, root, map[string]string{"b.py": "longer"})
	if err := u.Again(f); err != nil {
		t.Fatal(err)
	}
	fresh, err := spec.Upload{Path: root, Index: t.TempDir()}.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if f.Hash == old || f.Hash != fresh.Hash || f.Bytes() != fresh.Bytes() {
		t.Errorf("%s of %d bytes, want %s of %d; before it was %s", f.Hash, f.Bytes(), fresh.Hash, fresh.Bytes(), old)
	}
	// An index that is wrong is not believed a second time.
	tables, err := filepath.Glob(filepath.Join(u.Index, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		text, err := os.ReadFile(table)
		if err == nil {
			err = os.WriteFile(table, bytes.ReplaceAll(text, []byte{text[len(text)-1]}, []byte{^text[len(text)-1]}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Again(f); err != nil || f.Hash != fresh.Hash {
		t.Errorf("with a damaged index: %s, want %s: %v", f.Hash, fresh.Hash, err)
	}
	if err := os.Remove(filepath.Join(root, "c.py")); err != nil {
		t.Fatal(err)
	}
	if err := u.Again(f); err == nil || !strings.Contains(err.Error(), "c.py") {
		t.Errorf("a file that is gone: %v", err)
	}
}
