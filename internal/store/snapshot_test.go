package store_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// released are the hashes of the schema files that some release has: they never change.
var released = map[string]string{
	"0001_documents.sql":    "e3d205887e5a5754",
	"0002_blobs.sql":        "9f475b379c5f8e7a",
	"0003_blob_writers.sql": "023051356d5f6016",
	"0004_servers.sql":      "a3f497f5d38f0363",
}

func TestReleasedSchemasAreFixed(t *testing.T) {
	for name, want := range released {
		text, err := os.ReadFile(filepath.Join("schema", name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:8]) != want {
			t.Errorf("schema/%s was changed (%x): databases of released programs have the old one; add a file instead", name, sum[:8])
		}
	}
}

// rowsOf are all rows of a table, as text, in some order.
func rowsOf(t *testing.T, url, table string, columns []string) (out []string) {
	t.Helper()
	raw := rawDB(t, url)
	defer raw.Close()
	rows, err := raw.Query("SELECT " + strings.Join(columns, ", ") + " FROM " + table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%q", values))
	}
	slices.Sort(out)
	return out
}

// TestEverySchema: a database of every earlier schema, with rows in each of its tables, is opened
// by this build, which keeps them and can use what came later.
func TestEverySchema(t *testing.T) {
	files, err := filepath.Glob("schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	fill := []struct {
		since          int
		table, columns string
		values         string
	}{
		{1, "scopes", "id, workspace, kind", "(7, '/w', 'jobs'), (8, '/w', '')"},
		{1, "docs", "id, scope, key, name, version, rev, created, updated, created_by, status, archived, hash, parent, body", "(2, 7, 'old', 'Old', '', 4, 1700000000000000000, 1700000000000000000, 'me', 'Completed', 0, 'h', '', x'7b2261223a317d')"},
		{1, "events", "rev, time, scope, subject, type, reason", "(5, 1700000000000000000, 8, 'jobs/Old', 'job.created', '')"},
		{1, "tasks", "seq, id, scope, job, active, body", "(4, 'Old.1', 8, 'Old', 0, x'7b7d')"},
		{1, "leases", "name, holder, expires", "('l', 'h', 3)"},
		{1, "meta", "key, value", "('k', 'v')"},
		{2, "blobs", "container, name, size, hash, live, content_type, content_md5, meta, etag, created, modified", "('c', 'n', 3, 'abcd', '', 'text/plain', '', '', 'e', 1700000000000000000, 1700000000000000000)"},
		{4, "servers", "name, id, home, who, url, address, socket, since, seen", "('main', 'i', 'h', 'w', 'u', 'a', 's', 1, 0)"},
	}
	for version := 1; version < len(files); version++ {
		t.Run(fmt.Sprint("from", version), func(t *testing.T) {
			eachEngine(t, func(t *testing.T, url string) {
				words := strings.NewReplacer()
				if !strings.HasPrefix(url, "sqlite:") {
					words = strings.NewReplacer("INTEGER", "BIGINT", "BLOB", "BYTEA", "TEXT", `TEXT COLLATE "C"`, "x'", `'\x`, " WITHOUT ROWID", "")
				}
				raw := rawDB(t, url)
				run := func(text string) {
					t.Helper()
					if _, err := raw.Exec(words.Replace(text)); err != nil {
						t.Fatalf("%s: %v", text, err)
					}
				}
				run("CREATE TABLE schema_version (version INTEGER NOT NULL)")
				run(fmt.Sprintf("INSERT INTO schema_version VALUES (%d)", version))
				for _, path := range files[:version] {
					text, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					run(string(text))
				}
				run("UPDATE head SET rev = 5")
				before := map[string][]string{}
				for _, f := range fill {
					if f.since <= version {
						run("INSERT INTO " + f.table + " (" + f.columns + ") VALUES " + f.values)
						before[f.table] = rowsOf(t, url, f.table, strings.Split(f.columns, ", "))
					}
				}
				raw.Close()

				db := open(t, url)
				look(t, db, func(tx *store.Tx) error {
					d, err := tx.Get("/w", "jobs", "OLD", "")
					if err == nil && (d.Status != "Completed" || string(d.Body) != `{"a":1}`) {
						t.Errorf("the job: %+v", d)
					}
					return err
				})
				if db.Rev() != 5 {
					t.Errorf("rev %d, want 5", db.Rev())
				}
				must(t, db, func(tx *store.Tx) error {
					return tx.PutBlob(&store.Blob{Container: "c", Name: "new", Writer: "me"})
				})
				db.Close()
				for _, f := range fill {
					if f.since > version {
						continue
					}
					after := rowsOf(t, url, f.table, strings.Split(f.columns, ", "))
					for _, row := range before[f.table] {
						if !slices.Contains(after, row) {
							t.Errorf("%s lost %s: %s", f.table, row, after)
						}
					}
				}
			})
		})
	}
}

// TestSnapshot: a snapshot taken while the database is written to has all that was acknowledged
// before, nothing by halves, and can be restored into either engine.
func TestSnapshot(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		for i := range 50 {
			must(t, db, func(tx *store.Tx) error {
				name := fmt.Sprint("job", i)
				if err := tx.Insert(&store.Doc{Workspace: "/w", Kind: "jobs", Name: name, Body: json.RawMessage(`{"a":1}`)}); err != nil {
					return err
				}
				return tx.PutBlob(&store.Blob{Container: "c", Name: name, Hash: strings.Repeat("ab", 32), Size: 3})
			})
		}
		must(t, db, func(tx *store.Tx) error { return tx.PutBlob(&store.Blob{Container: "c", Name: "log", Live: "logs/a"}) })
		stop, ready := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // a document and a blob at a time
			for i := 0; ; i++ {
				if i == 10 {
					close(ready)
				}
				select {
				case <-stop:
					return
				default:
				}
				must(t, db, func(tx *store.Tx) error {
					name := fmt.Sprint("more", i)
					if err := tx.Insert(&store.Doc{Workspace: "/w", Kind: "jobs", Name: name, Body: json.RawMessage(`{}`)}); err != nil {
						return err
					}
					return tx.PutBlob(&store.Blob{Container: "more", Name: name, Hash: strings.Repeat("cd", 32), Size: 3})
				})
			}
		})
		<-ready
		dir := t.TempDir()
		path := filepath.Join(dir, "snapshot")
		_, err := store.Snapshot(ctx, url, path)
		close(stop)
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		err = store.SnapshotBlobs(ctx, path, func(hash string, size int64, live string) error {
			seen = append(seen, fmt.Sprintf("%.4s %d %s", hash, size, live))
			return nil
		})
		if diff := cmp.Diff([]string{" 0 logs/a", "abab 3 ", "cdcd 3 "}, seen); err != nil || diff != "" {
			t.Error(err, diff)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		eachEngine(t, func(t *testing.T, to string) {
			copied := filepath.Join(t.TempDir(), "copy")
			restore := func(id string) error {
				if err := os.WriteFile(copied, text, 0o600); err != nil {
					t.Fatal(err)
				}
				return store.Restore(ctx, copied, to, id)
			}
			if err := restore("a"); err != nil {
				t.Fatal(err)
			}
			if err := restore("b"); berth.CodeOf(err) != berth.Conflict {
				t.Errorf("into a database that is not empty: %v", err)
			}
			if !strings.HasPrefix(to, "sqlite:") {
				if err := restore("a"); err != nil {
					t.Errorf("once more, after it was cut short: %v", err)
				}
			}
			got := open(t, to)
			look(t, got, func(tx *store.Tx) error {
				docs, err := tx.All(store.Query{Workspace: "/w", Kind: "jobs"})
				if err != nil {
					return err
				}
				blobs, err := tx.ListBlobs(store.BlobQuery{Container: "more", Limit: 1 << 20})
				if len(docs) != 50+len(blobs) || len(blobs) < 10 {
					t.Errorf("%d documents, %d blobs", len(docs), len(blobs))
				}
				return err
			})
			must(t, got, func(tx *store.Tx) error {
				return tx.Insert(&store.Doc{Workspace: "/w", Kind: "jobs", Name: "after", Body: json.RawMessage(`{}`)})
			})
		})
	})
}

// TestSnapshotIsRefused: of and from what is not a database of this schema.
func TestSnapshotIsRefused(t *testing.T) {
	_, err := store.Snapshot(ctx, "sqlite:"+filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "s"))
	wantCode(t, err, berth.NotFound)
	dir := t.TempDir()
	url, path := "sqlite:"+filepath.Join(dir, "db"), filepath.Join(dir, "s")
	open(t, url).Close()
	raw := rawDB(t, url)
	if _, err := raw.Exec("UPDATE schema_version SET version = 999"); err != nil {
		t.Fatal(err)
	}
	raw.Close()
	_, err = store.Snapshot(ctx, url, path)
	wantCode(t, err, berth.Unsupported)
	if err := store.Restore(ctx, path, "sqlite:"+filepath.Join(dir, "to"), "x"); err == nil || !strings.Contains(err.Error(), "newer Berth (schema 999") {
		t.Errorf("restored: %v", err)
	}
	if err := os.WriteFile(path, text(5000), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCode(t, store.Restore(ctx, path, "sqlite:"+filepath.Join(dir, "to"), "x"), berth.Invalid)
}

func text(n int) []byte { return []byte(strings.Repeat("x", n)) }
