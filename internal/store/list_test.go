package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/store"
)

// TestListLaw compares List with a filter over all documents, for any collection, query and cursor.
func TestListLaw(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		round := 0
		rapid.Check(t, func(r *rapid.T) {
			round++
			kind := fmt.Sprintf("kind%d/versions", round)
			pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(r, label) }
			var all []*store.Doc
			for i := range rapid.IntRange(0, 30).Draw(r, "n") {
				all = append(all, &store.Doc{
					Workspace: ws, Kind: kind, Name: pick("name", "a", "B", "c"), Version: fmt.Sprint(i),
					Status: pick("status", "", "Running", "Completed", "Failed"), Archived: rapid.Bool().Draw(r, "archived"),
					Hash: pick("hash", "", "h1", "h2"), Parent: pick("parent", "", "p1", "p2"), Body: []byte(`{}`),
				})
			}
			must(t, db, func(tx *store.Tx) error {
				for _, d := range all {
					if err := tx.Insert(d); err != nil {
						return err
					}
				}
				return nil
			})
			q := store.Query{
				Workspace: ws, Kind: kind, Name: pick("qname", "", "", "b", "C"), Hash: pick("qhash", "", "", "h1"),
				Parent: pick("qparent", "", "", "p1"), Asc: rapid.Bool().Draw(r, "asc"), Limit: rapid.IntRange(1, 12).Draw(r, "limit"),
				NoBody: rapid.Bool().Draw(r, "nobody"),
				Status: rapid.SliceOfN(rapid.SampledFrom([]string{"Running", "Failed", "Nope", ""}), 0, 4).Draw(r, "qstatus"),
			}
			if rapid.Bool().Draw(r, "filter") {
				archived := rapid.Bool().Draw(r, "qarchived")
				q.Archived = &archived
			}
			want := filter(all, q)
			var got []*store.Doc
			for {
				var page []*store.Doc
				look(t, db, func(tx *store.Tx) (err error) {
					page, err = tx.List(q)
					return err
				})
				got = append(got, page...)
				if len(page) < q.Limit {
					break
				}
				q.After = page[len(page)-1].ID
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				r.Fatalf("%+v: %s", q, diff)
			}
		})
	})
}

// filter is what List of all pages means.
func filter(all []*store.Doc, q store.Query) []*store.Doc {
	var out []*store.Doc
	for _, d := range all {
		if q.Name != "" && !strings.EqualFold(d.Name, q.Name) || q.Hash != "" && d.Hash != q.Hash ||
			q.Parent != "" && d.Parent != q.Parent || q.Archived != nil && d.Archived != *q.Archived ||
			len(q.Status) > 0 && !slices.Contains(q.Status, d.Status) {
			continue
		}
		c := *d
		if q.NoBody {
			c.Body, c.Own = nil, nil
		}
		out = append(out, &c)
	}
	slices.SortFunc(out, func(a, b *store.Doc) int {
		if q.Asc {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Compare(b.ID, a.ID)
	})
	return out
}

// TestStateBytes: what Berth owns of documents is summed in bytes, by workspace and kind.
func TestStateBytes(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		must(t, db, func(tx *store.Tx) error {
			for i, d := range []store.Doc{
				{Workspace: "w", Kind: "runs", Name: "a", Own: []byte(`"é"`)},
				{Workspace: "w", Kind: "runs", Name: "b", Body: []byte(`{}`)},
				{Workspace: "w", Kind: "models", Name: "a", Own: []byte(`{}`)},
				{Workspace: "v", Kind: "runs", Name: "a", Own: []byte(`{}`)},
			} {
				if err := tx.Insert(&d); err != nil {
					return fmt.Errorf("%d: %w", i, err)
				}
			}
			return nil
		})
		look(t, db, func(tx *store.Tx) error {
			docs, bytes, err := tx.StateBytes("w", "runs", "models", "none")
			if docs != 3 || bytes != 4+2 {
				t.Errorf("%d documents, %d bytes", docs, bytes)
			}
			return err
		})
	})
}
