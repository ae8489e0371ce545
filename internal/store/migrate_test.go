package store_test

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// rawDB opens a database without the store.
func rawDB(t *testing.T, url string) *sql.DB {
	t.Helper()
	driver, name := "pgx", url
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, name = "sqlite", path
	}
	raw, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	_ = stdlib.GetDefaultDriver // registers pgx
	return raw
}

// TestOldSchema opens a database as the first version of the schema left it, and uses what came
// later.
func TestOldSchema(t *testing.T) {
	fixture, err := os.ReadFile("testdata/schema1.sql")
	if err != nil {
		t.Fatal(err)
	}
	eachEngine(t, func(t *testing.T, url string) {
		text := string(fixture)
		if !strings.HasPrefix(url, "sqlite:") {
			text = strings.NewReplacer("INTEGER", "BIGINT", "BLOB", "BYTEA", "TEXT", `TEXT COLLATE "C"`, "x'", `'\x`).Replace(text)
		}
		raw := rawDB(t, url)
		for stmt := range strings.SplitSeq(text, ";\n") {
			if _, err := raw.Exec(stmt); err != nil {
				t.Fatalf("%s: %v", stmt, err)
			}
		}
		raw.Close()

		db := open(t, url)
		look(t, db, func(tx *store.Tx) error {
			d, err := tx.Get("/w", "jobs", "OLD", "")
			if err != nil {
				return err
			}
			want := &store.Doc{
				Workspace: "/w", Kind: "jobs", Name: "Old", ID: 2, Rev: 4, Created: d.Created, Updated: d.Updated,
				CreatedBy: "me", Status: "Completed", Body: json.RawMessage(`{"a":1}`),
			}
			if diff := cmp.Diff(want, d); diff != "" {
				t.Error(diff)
			}
			events, err := tx.Events(store.EventQuery{Workspace: "/w"})
			if len(events) != 1 || events[0].Type != berth.EventJobCreated {
				t.Errorf("events %+v", events)
			}
			return err
		})
		if db.Rev() != 5 {
			t.Errorf("rev %d, want 5", db.Rev())
		}
		must(t, db, func(tx *store.Tx) error { return tx.PutBlob(&store.Blob{Container: "c", Name: "n"}) })
		db.Close()
		open(t, url) // and once more
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		open(t, url).Close()
		raw := rawDB(t, url)
		if _, err := raw.Exec("UPDATE schema_version SET version = 999"); err != nil {
			t.Fatal(err)
		}
		raw.Close()
		_, err := store.Open(ctx, url, store.Options{})
		wantCode(t, err, berth.Unsupported)
		if err == nil || !strings.Contains(err.Error(), "newer Berth (schema 999") {
			t.Errorf("message %v", err)
		}
	})
}

func TestForeignDatabaseIsRefused(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		raw := rawDB(t, url)
		if _, err := raw.Exec("CREATE TABLE docs (x TEXT)"); err != nil {
			t.Fatal(err)
		}
		raw.Close()
		_, err := store.Open(ctx, url, store.Options{})
		wantCode(t, err, berth.Invalid)
	})
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(ctx, "sqlite:"+path, store.Options{})
	wantCode(t, err, berth.Invalid)
	if got, _ := os.ReadFile(path); !strings.HasPrefix(string(got), "this is") {
		t.Error("the file was changed")
	}
}

func TestBadURL(t *testing.T) {
	for _, url := range []string{"", "berth.db", "mysql://x", "sqlite:", "postgres://:::"} {
		_, err := store.Open(ctx, url, store.Options{})
		wantCode(t, err, berth.Invalid)
	}
	_, err := store.Open(ctx, "postgres://user:secret@127.0.0.1:1/x", store.Options{})
	wantCode(t, err, berth.Unavailable)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in the message: %v", err)
	}
}
