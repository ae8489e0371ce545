package store

import (
	"context"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// TestPreparedOnce checks that SQLite does not prepare a statement again that it has: it asks its
// authorizer when it prepares.
func TestPreparedOnce(t *testing.T) {
	ctx := context.Background()
	db, err := Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "berth.db"), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	no, asked := false, 0
	reads := map[string]func(tx *Tx) error{
		"get":  func(tx *Tx) error { _, err := tx.Get("w", "jobs", "a", ""); return err },
		"list": func(tx *Tx) error { _, err := tx.List(Query{Workspace: "w", Kind: "jobs", Archived: &no}); return err },
		"statuses": func(tx *Tx) error {
			_, err := tx.List(Query{Workspace: "w", Kind: "jobs", Status: []string{"x", "y"}})
			return err
		},
		"parent": func(tx *Tx) error { _, err := tx.List(Query{Workspace: "w", Kind: "jobs", Parent: "p"}); return err },
		"tasks":  func(tx *Tx) error { _, err := tx.TasksOf("w", "a"); return err },
		"events": func(tx *Tx) error { _, err := tx.Events(EventQuery{Workspace: "w", Subject: "jobs/a"}); return err },
		"blobs":  func(tx *Tx) error { _, err := tx.ListBlobs(BlobQuery{Container: "c", Prefix: "p"}); return err },
		"save": func(tx *Tx) error {
			d, err := tx.Get("w", "jobs", "a", "")
			if err != nil {
				return err
			}
			return tx.Save(d)
		},
	}
	err = db.Update(ctx, func(tx *Tx) error {
		if err := tx.Insert(&Doc{Workspace: "w", Kind: "jobs", Name: "a", Status: "x", Parent: "p"}); err != nil {
			return err
		}
		if _, err := tx.makeScope("w", ""); err != nil {
			return err
		}
		return tx.s.conn.Raw(func(c any) error {
			return c.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(func(sqlite.AuthorizerActionCode, string, string, string, string) sqlite.AuthorizerReturnCode {
				asked++
				return lib.SQLITE_OK
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range reads {
		for n := range 3 {
			was := asked
			if err := db.Update(ctx, read); err != nil {
				t.Fatal(name, err)
			}
			if n > 0 && asked != was {
				t.Errorf("%s: prepared again", name)
			}
		}
	}
	if asked == 0 {
		t.Error("nothing was prepared: this test sees nothing")
	}
}
