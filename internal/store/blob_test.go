package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

func TestBlob(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		at := time.Date(2024, 1, 2, 3, 4, 5, 6, time.UTC)
		b := &store.Blob{
			Container: "c", Name: "a/b.txt", Size: 1 << 40, Hash: "abc", ContentType: "text/plain", ContentMD5: "bQ==",
			Meta: map[string]string{"Name": "v é"}, ETag: "0x1", Created: at, Modified: at,
		}
		live := &store.Blob{Container: "c", Name: "log", Live: "runs/x/log"}
		must(t, db, func(tx *store.Tx) error {
			if err := tx.PutBlob(live); err != nil {
				return err
			}
			return tx.PutBlob(b)
		})
		for _, want := range []*store.Blob{b, live} {
			look(t, db, func(tx *store.Tx) error {
				got, err := tx.Blob("c", want.Name)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
				return err
			})
		}
		if live.Created.IsZero() || live.Modified.IsZero() {
			t.Error("no times set")
		}
		used := func(hash string, want bool) {
			t.Helper()
			look(t, db, func(tx *store.Tx) error {
				got, err := tx.BlobHashUsed(hash)
				if got != want {
					t.Errorf("%q used: %v", hash, got)
				}
				return err
			})
		}
		for container, want := range map[string]int64{"c": 1 << 40, "d": 0} {
			look(t, db, func(tx *store.Tx) error {
				got, err := tx.BlobBytes(container)
				if got != want {
					t.Errorf("%d bytes in %s", got, container)
				}
				return err
			})
		}
		used("abc", true)
		used("", false)
		b2 := *b
		b2.Hash, b2.Meta = "def", nil
		must(t, db, func(tx *store.Tx) error { return tx.PutBlob(&b2) })
		used("abc", false)
		look(t, db, func(tx *store.Tx) error {
			got, err := tx.Blob("c", b.Name)
			if diff := cmp.Diff(&b2, got); diff != "" {
				t.Error(diff)
			}
			_, missing := tx.Blob("d", b.Name)
			wantCode(t, missing, berth.NotFound)
			return err
		})
		must(t, db, func(tx *store.Tx) error { return tx.DeleteBlob("c", b.Name) })
		wantCode(t, db.Update(ctx, func(tx *store.Tx) error { return tx.DeleteBlob("c", b.Name) }), berth.NotFound)
		used("def", false)
	})
}

func TestBlobHashes(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		must(t, db, func(tx *store.Tx) error {
			for i, hash := range []string{"b", "a", "c", "a", "", "b", "d"} {
				if err := tx.PutBlob(&store.Blob{Container: "c", Name: string(rune('0' + i)), Hash: hash}); err != nil {
					return err
				}
			}
			return nil
		})
		look(t, db, func(tx *store.Tx) error {
			first, err := tx.BlobHashes("", 3)
			if err != nil {
				return err
			}
			rest, err := tx.BlobHashes(first[len(first)-1], 3)
			if got := strings.Join(append(first, rest...), " "); got != "a b c d" {
				t.Errorf("hashes %s", got)
			}
			return err
		})
	})
}

// TestListBlobsLaw compares ListBlobs with sorting by bytes and strings.HasPrefix, for names that
// are hard to match.
func TestListBlobsLaw(t *testing.T) {
	alphabet := []string{"a", "A", "B", "_", "%", "/", "-", ".", "\\", "'", "é", "e\u0301", "z", "日", "\ud7ff", "\ue000", "\U0010ffff", "\U0001f6a2", " ", "*", "?", "["}
	text := func(lo, hi int) *rapid.Generator[string] {
		return rapid.Map(rapid.SliceOfN(rapid.SampledFrom(alphabet), lo, hi), func(s []string) string { return strings.Join(s, "") })
	}
	eachEngine(t, func(t *testing.T, url string) {
		db := open(t, url)
		round := 0
		rapid.Check(t, func(r *rapid.T) {
			round++
			container := strings.Repeat("c", round)
			names := rapid.SliceOfNDistinct(text(1, 4), 0, 20, rapid.ID[string]).Draw(r, "names")
			must(t, db, func(tx *store.Tx) error {
				for _, n := range names {
					if err := tx.PutBlob(&store.Blob{Container: container, Name: n}); err != nil {
						return err
					}
				}
				return nil
			})
			prefix, limit := text(0, 2).Draw(r, "prefix"), rapid.IntRange(1, 5).Draw(r, "limit")
			var want, got []string
			for _, n := range names {
				if strings.HasPrefix(n, prefix) {
					want = append(want, n)
				}
			}
			slices.Sort(want)
			for after := ""; ; {
				var page []*store.Blob
				look(t, db, func(tx *store.Tx) (err error) {
					page, err = tx.ListBlobs(store.BlobQuery{Container: container, Prefix: prefix, After: after, Limit: limit})
					return err
				})
				for _, b := range page {
					got = append(got, b.Name)
					after = b.Name
				}
				if len(page) < limit {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				r.Fatalf("prefix %q: %s", prefix, diff)
			}
		})
	})
}
