package locate_test

import (
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// TestLoggedFilesAreTracking: whose the files of logged models are, tracking knows. Nobody writes
// them past it; the same names in the default datastore are anybody's.
func TestLoggedFilesAreTracking(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Insert(&store.Doc{Kind: "workspaces", Name: "w", Own: []byte(`{"id": "1", "blobContainer": "b", "artifactContainer": "a"}`)})
	})
	if err != nil {
		t.Fatal(err)
	}
	owners := &locate.Owners{DB: db}
	for range 2 {
		for at, want := range map[[2]string]berth.Code{
			{"a", "mlflow/1/models/m-1/artifacts/f"}: berth.Denied, {"a", "mlflow/"}: berth.Denied,
			{"a", "folder/f"}: "", {"b", "mlflow/1/models/m-1/artifacts/f"}: "", {"c", "mlflow/f"}: "",
		} {
			if _, _, err := owners.Writer(t.Context(), at[0], at[1]); err != nil && berth.CodeOf(err) != want || err == nil && want != "" {
				t.Errorf("%v: %v, want %q", at, err, want)
			}
		}
	}
}
