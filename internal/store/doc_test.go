package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

var ctx = context.Background()

const ws = "/subscriptions/s/resourcegroups/g/providers/microsoft.machinelearningservices/workspaces/w"

// must runs an update that has to work.
func must(t testing.TB, db *store.DB, fn func(*store.Tx) error) {
	t.Helper()
	if err := db.Update(ctx, fn); err != nil {
		t.Fatal(err)
	}
}

// look runs a view that has to work.
func look(t testing.TB, db *store.DB, fn func(*store.Tx) error) {
	t.Helper()
	if err := db.View(ctx, fn); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code berth.Code) {
	t.Helper()
	if berth.CodeOf(err) != code || err == nil {
		t.Errorf("error %v, want code %s", err, code)
	}
}

func job(name string) *store.Doc {
	return &store.Doc{Workspace: ws, Kind: "jobs", Name: name, Status: "NotStarted", Body: json.RawMessage(`{"properties":{}}`)}
}

func TestDocument(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		body := json.RawMessage("{ \"b\" : 1,\n\t\"a\": \"\\u0000 é\" , \"a\": 2 }")
		d := job("My-Job")
		d.Body, d.CreatedBy, d.Hash, d.Parent = body, "me", "h", "p"
		before := time.Now().Add(-time.Minute)
		must(t, db, func(tx *store.Tx) error { return tx.Insert(d) })
		if d.ID == 0 || d.Rev == 0 || d.Created.Before(before) || !d.Updated.Equal(d.Created) {
			t.Errorf("insert set %+v", d)
		}
		look(t, db, func(tx *store.Tx) error {
			for _, name := range []string{"My-Job", "my-job", "MY-JOB"} {
				got, err := tx.Get(ws, "jobs", name, "")
				if err != nil {
					return err
				}
				if diff := cmp.Diff(d, got); diff != "" {
					t.Error(diff)
				}
			}
			_, err := tx.Get(ws, "jobs", "other", "")
			wantCode(t, err, berth.NotFound)
			_, err = tx.Get(ws, "models", "my-job", "")
			wantCode(t, err, berth.NotFound)
			_, err = tx.Get("", "jobs", "my-job", "")
			wantCode(t, err, berth.NotFound)
			_, err = tx.Get(ws, "jobs", "my-job", "1")
			wantCode(t, err, berth.NotFound)
			return nil
		})
		wantCode(t, db.Update(ctx, func(tx *store.Tx) error { return tx.Insert(job("MY-job")) }), berth.Conflict)

		rev := d.Rev
		must(t, db, func(tx *store.Tx) error {
			got, err := tx.Get(ws, "jobs", "MY-JOB", "")
			if err != nil {
				return err
			}
			got.Status, got.Archived, got.Own, got.Hash = "Completed", true, json.RawMessage(`{"x":1}`), ""
			d = got
			return tx.Save(got)
		})
		if d.Rev <= rev {
			t.Errorf("rev %d after %d", d.Rev, rev)
		}
		look(t, db, func(tx *store.Tx) error {
			got, err := tx.Get(ws, "jobs", "my-job", "")
			if diff := cmp.Diff(d, got); diff != "" {
				t.Error(diff)
			}
			return err
		})

		must(t, db, func(tx *store.Tx) error { return tx.Delete(ws, "jobs", "MY-JOB", "") })
		for _, fn := range []func(tx *store.Tx) error{
			func(tx *store.Tx) error { return tx.Delete(ws, "jobs", "my-job", "") },
			func(tx *store.Tx) error { return tx.Save(d) },
			func(tx *store.Tx) error { return tx.Save(&store.Doc{Kind: "nowhere"}) },
			func(tx *store.Tx) error { return tx.Delete("", "nowhere", "x", "") },
		} {
			wantCode(t, db.Update(ctx, fn), berth.NotFound)
		}

		created := time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)
		again := job("my-JOB")
		again.Created, again.Body = created, nil
		must(t, db, func(tx *store.Tx) error { return tx.Insert(again) })
		look(t, db, func(tx *store.Tx) error {
			got, err := tx.Get(ws, "jobs", "my-job", "")
			if err == nil && (got.Name != "my-JOB" || !got.Created.Equal(created) || got.Body != nil || got.Own != nil || got.ID <= d.ID) {
				t.Errorf("got %+v", got)
			}
			return err
		})
	})
}

func TestVersions(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		must(t, db, func(tx *store.Tx) error {
			for _, name := range []string{"env", "other"} {
				for i := range 5 {
					d := &store.Doc{Workspace: ws, Kind: "environments/versions", Name: name, Version: fmt.Sprint(5 - i)}
					if err := tx.Insert(d); err != nil {
						return err
					}
				}
			}
			return nil
		})
		look(t, db, func(tx *store.Tx) error {
			docs, err := tx.List(store.Query{Workspace: ws, Kind: "environments/versions", Name: "ENV"})
			if got := versions(docs); got != "1 2 3 4 5" {
				t.Errorf("newest first: %s", got)
			}
			return err
		})
		err := db.Update(ctx, func(tx *store.Tx) error {
			return tx.Insert(&store.Doc{Workspace: ws, Kind: "environments/versions", Name: "Env", Version: "3"})
		})
		wantCode(t, err, berth.Conflict)
		if want := "environments/Env/versions/3 already exists"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
	})
}

func versions(docs []*store.Doc) string {
	var v []string
	for _, d := range docs {
		v = append(v, d.Version)
	}
	return strings.Join(v, " ")
}

// TestPaging walks pages while documents come and go: those that stay are seen once.
func TestPaging(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		const n = 53
		must(t, db, func(tx *store.Tx) error {
			for i := range n {
				d := job(fmt.Sprintf("j%d", i))
				d.Archived = i%3 == 0
				if err := tx.Insert(d); err != nil {
					return err
				}
			}
			return nil
		})
		for _, asc := range []bool{false, true} {
			var seen []string
			after, extra := int64(0), 0
			for {
				var page []*store.Doc
				look(t, db, func(tx *store.Tx) (err error) {
					page, err = tx.List(store.Query{Workspace: ws, Kind: "jobs", After: after, Limit: 7, Asc: asc})
					return err
				})
				for _, d := range page {
					if d.Name[0] == 'j' {
						seen = append(seen, d.Name)
					}
				}
				if len(page) < 7 {
					break
				}
				after = page[len(page)-1].ID
				if extra < 5 {
					extra++
					must(t, db, func(tx *store.Tx) error { return tx.Insert(job(fmt.Sprintf("new-%v-%d", asc, extra))) })
				}
			}
			var want []string
			for i := range n {
				want = append(want, fmt.Sprintf("j%d", i))
			}
			if !asc {
				slices.Reverse(want)
			}
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Errorf("asc %v: %s", asc, diff)
			}
		}
	})
}

func TestScopesAreApart(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		// The update that makes the scope fails; the one in the same batch or after must not rely
		// on it.
		for i := range 3 {
			err := db.Update(ctx, func(tx *store.Tx) error {
				if err := tx.Insert(&store.Doc{Workspace: "/a", Kind: "computes", Name: "c"}); err != nil {
					return err
				}
				if i < 2 {
					return fmt.Errorf("no")
				}
				return nil
			})
			if (err != nil) != (i < 2) {
				t.Errorf("%d: %v", i, err)
			}
		}
		must(t, db, func(tx *store.Tx) error {
			return tx.Insert(&store.Doc{Workspace: "/b", Kind: "computes", Name: "C"})
		})
		for ws, want := range map[string]string{"/a": "c", "/b": "C", "/c": ""} {
			look(t, db, func(tx *store.Tx) error {
				docs, err := tx.List(store.Query{Workspace: ws, Kind: "computes"})
				got := ""
				for _, d := range docs {
					got += d.Name
				}
				if got != want {
					t.Errorf("%s: %q, want %q", ws, got, want)
				}
				return err
			})
		}
	})
}
