package locate_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// TestDatastoresAreReadOnce: a job has many inputs, and the datastores of its workspace are read
// and parsed once for all of them, again only when one was changed.
func TestDatastoresAreReadOnce(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ws := berth.Workspace{Subscription: "s", Group: "g", Name: "w"}
	put := func(tx *store.Tx, name, bucket string) error {
		return tx.Insert(&store.Doc{
			Workspace: ws.Key(), Kind: "datastores", Name: name, CreatedBy: "ann",
			Body: fmt.Appendf(nil, `{"properties":{"datastoreType":"S3","bucket":%q}}`, bucket),
		})
	}
	const count = 300
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		for i := range count {
			if err := put(tx, fmt.Sprint("d", i), fmt.Sprint("bucket", i)); err != nil {
				return err
			}
		}
		l := locate.Locator{BaseURL: "https://x", Account: "st", Suffix: "berth/"}
		resolve := func(uri, want string) {
			t.Helper()
			if p, err := l.Resolve(tx, ws, "ann", uri); err != nil || p.Datastore != want {
				t.Errorf("%s is in %q, %v; want %q", uri, p.Datastore, err, want)
			}
		}
		resolve("s3://bucket7/x", "d7")
		if n := testing.AllocsPerRun(10, func() { resolve("s3://bucket7/x", "d7") }); n >= count {
			t.Errorf("each further address takes %v allocations with %d datastores", n, count)
		}
		if err := put(tx, "late", "late"); err != nil {
			return err
		}
		resolve("s3://late/x", "late")
		if err := tx.Delete(ws.Key(), "datastores", "late", ""); err != nil {
			return err
		}
		resolve("s3://late/x", "")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
