package blob_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// TestVersionOfFolder: the word for a folder stays as long as nothing in it is written, and no
// longer.
func TestVersionOfFolder(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "berth.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	version := func(name string) (v string) {
		t.Helper()
		err := db.Update(t.Context(), func(tx *store.Tx) (err error) {
			v, err = blob.Version(tx, "box", name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	write := func(name, text string) {
		t.Helper()
		if _, err := s.Put(t.Context(), "box", name, strings.NewReader(text), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	write("data/a", "one")
	last := version("data")
	same := func(what string, want bool) {
		t.Helper()
		v := version("data")
		if (v == last) != want || v == "" {
			t.Errorf("after %s the version is %s, before it was %s", what, v, last)
		}
		last = v
	}
	same("nothing", true)
	if version("data/") != last {
		t.Error("a slash makes another folder")
	}
	write("data2/a", "two")
	write("other/data/a", "two")
	same("writes elsewhere", true)
	write("data/a", "two")
	same("a changed file", false)
	write("data/b/c", "two")
	same("a new file", false)
	if err := s.Delete(t.Context(), "box", "data/b/c"); err != nil {
		t.Fatal(err)
	}
	same("a deleted file", false)
	write("data/f", "1")
	if err := db.Update(t.Context(), func(tx *store.Tx) error { return blob.Hold(tx, "box", "data", "data x:1", "ann") }); err != nil {
		t.Fatal(err)
	}
	same("a new file before it was registered", false)
	write("data/a", "two")
	same("the content that is there", true)
	write("data/late", "more")
	same("a file that was added to a registered version", false)
	if v := version("nothing"); v != "" {
		t.Errorf("a folder without files has the version %s", v)
	}
	if v := version(""); v != "" {
		t.Errorf("a container has the version %s", v)
	}
	file := version("data/a")
	write("data/a2", "x")
	if version("data/a") != file {
		t.Error("a file beside it changes a file")
	}
}

// TestEntries lists what a folder consists of.
func TestEntries(t *testing.T) {
	s := open(t)
	put(t, s, "dir/a", "1")
	put(t, s, "dir/b/c", "22")
	put(t, s, "dirx", "3")
	if _, err := s.Put(t.Context(), "box", "dir/mark", strings.NewReader(""), blob.PutOptions{Meta: map[string]string{"hdi_isfolder": "true"}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := s.Entries(t.Context(), "box", "dir/", func(e blob.Entry) error {
		got = append(got, e.Path)
		return nil
	})
	if err != nil || strings.Join(got, " ") != "a b/c" {
		t.Errorf("%v, %v", got, err)
	}
	none := func(blob.Entry) error { return nil }
	if err := s.Entries(t.Context(), "box", "nothing", none); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := s.PutLive(t.Context(), "box", "dir/log", "logs/x"); err != nil {
		t.Fatal(err)
	}
	if err := s.Entries(t.Context(), "box", "dir", none); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("%v", err)
	}
}
