package store_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// TestReplacedFileIsNoticed: a database whose file was moved, removed, replaced by an older copy or
// written over with one does not take updates without a word, and its server is told to stop.
func TestReplacedFileIsNoticed(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path, old string){
		"moved":        func(t *testing.T, path, old string) { rename(t, path, path+".moved") },
		"removed":      func(t *testing.T, path, old string) { rename(t, path, filepath.Join(t.TempDir(), "away")) },
		"renamed over": func(t *testing.T, path, old string) { rename(t, old, path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, db, old := withOld(t)
			replace(t, path, old)
			if err := db.Update(t.Context(), writeOne("after")); berth.CodeOf(err) != berth.Unavailable {
				t.Errorf("an update: %v", err)
			}
			if err := db.Check(t.Context()); berth.CodeOf(err) != berth.Unavailable {
				t.Errorf("the check: %v", err)
			}
			if err := db.Guard(t.Context()); berth.CodeOf(err) != berth.Unavailable {
				t.Errorf("the guard: %v", err)
			}
		})
	}
	t.Run("written over", func(t *testing.T) {
		t.Parallel()
		path, db, old := withOld(t)
		copyOver(t, old, path)
		if err := db.Guard(t.Context()); berth.CodeOf(err) != berth.Unavailable {
			t.Errorf("the guard: %v", err)
		}
	})
}

// withOld is a database and an older copy of its file. All of it is in the file, nothing in its
// log.
func withOld(t *testing.T) (path string, db *store.DB, old string) {
	t.Helper()
	dir := t.TempDir()
	path, old = filepath.Join(dir, "berth.db"), filepath.Join(dir, "old")
	db, err := store.Open(t.Context(), "sqlite:"+path, store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	must(t, db, writeOne("a"))
	db.Close()
	copyOver(t, path, old)
	if db, err = store.Open(context.Background(), "sqlite:"+path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	must(t, db, writeOne("b"))
	db.Close()
	db = open(t, "sqlite:"+path)
	if err := db.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path, db, old
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func copyOver(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
}
