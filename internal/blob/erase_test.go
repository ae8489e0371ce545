package blob_test

import (
	"slices"
	"testing"

	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

// TestEraseKeepsVersions: the files of a folder go, and those stay that a version consists of.
func TestEraseKeepsVersions(t *testing.T) {
	s, db := openBoth(t, t.TempDir())
	for _, name := range []string{"azureml/j/m/w.bin", "azureml/j/m/more/x", "azureml/j/one.csv", "azureml/j/log", "azureml/j2/log"} {
		put(t, s, name, name)
	}
	var left []string
	err := db.Update(t.Context(), func(tx *store.Tx) error {
		for version, at := range map[string]string{"model m:1": "azureml/j/m", "data asset d:1": "azureml/j/one.csv"} {
			if err := blob.Hold(tx, "box", at, version, "ann"); err != nil {
				return err
			}
		}
		if err := tx.PutBlob(&store.Blob{Container: "box", Name: "azureml/versions/k/c.py", Hash: "h"}); err != nil {
			return err
		}
		for _, folder := range []string{"azureml/j/", "azureml/versions/"} {
			if err := blob.Erase(tx, "box", folder); err != nil {
				return err
			}
		}
		left = nil
		all, err := tx.ListBlobs(store.BlobQuery{Container: "box"})
		for _, b := range all {
			left = append(left, b.Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"azureml/j/m/more/x", "azureml/j/m/w.bin", "azureml/j/one.csv", "azureml/j2/log", "azureml/versions/k/c.py"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}

// TestSharedFoldersAreNotHeld: a version of a folder of everybody's keeps nothing of others there.
func TestSharedFoldersAreNotHeld(t *testing.T) {
	s, db := openBoth(t, t.TempDir())
	put(t, s, "mlflow/1/models/m-1/artifacts/f", "f")
	hold := func(at, want string) {
		t.Helper()
		err := db.Update(t.Context(), func(tx *store.Tx) error {
			if err := blob.Hold(tx, "box", at, "model "+at+":1", "bob"); err != nil {
				return err
			}
			got, err := blob.VersionBelow(tx, "box", "mlflow/1/models/m-1")
			if got != want {
				t.Errorf("with a version of %s the files are of %q, want %q", at, got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{"mlflow", "mlflow/", "mlflow/1", "mlflow/1/models/", "mlflow/2/models"} {
		hold(at, "")
	}
	hold("mlflow/1/models/m-1", "model mlflow/1/models/m-1:1")
}
