package blob

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Code that is registered in a folder of nobody is run as it was then: the names and hashes of its
// files are entered once more at a place that only the server writes to. The bytes are shared.

// fixedRoot is above the places of such versions.
const fixedRoot = "azureml/versions/"

// maxFixed is how many files such a version may have.
const maxFixed = 10_000

func fixedFolder(version string) string { return fixedRoot + placeKey(version) }

// fix enters what lies at a place for a version, and returns where.
func fix(tx *store.Tx, container, name, version string) (place string, err error) {
	if err := unfix(tx, container, version); err != nil {
		return "", err
	}
	place = fixedFolder(version) + "/" + path.Base(name) // a file keeps its name
	n := 0
	err = below(tx, container, name, func(b *store.Blob) error {
		if n++; n > maxFixed {
			return berth.Errorf(berth.Invalid, "%s has more than %d files at %s; upload the files it needs to a separate folder", version, maxFixed, quote(name))
		}
		if b.Hash == "" {
			return berth.Errorf(berth.Conflict, "blob %s is still being written; register %s when it is complete", quote(b.Name), version)
		}
		b.Name, b.Meta = place+strings.TrimPrefix(b.Name, name), nil
		return tx.PutBlob(b)
	})
	if err == nil {
		err = changed(tx, container, []string{place})
	}
	return place, err
}

// unfix forgets what fix entered.
func unfix(tx *store.Tx, container, version string) error {
	folder := fixedFolder(version) + "/"
	places := map[string]bool{}
	err := below(tx, container, fixedFolder(version), func(b *store.Blob) error {
		first, _, _ := strings.Cut(strings.TrimPrefix(b.Name, folder), "/")
		places[folder+first] = true
		return tx.DeleteBlob(container, b.Name)
	})
	if err != nil {
		return err
	}
	return changed(tx, container, slices.Collect(maps.Keys(places)))
}

// below calls f for the blob of a name and those in the folder of that name.
func below(tx *store.Tx, container, name string, f func(*store.Blob) error) error {
	for q := (store.BlobQuery{Container: container, Prefix: name}); ; {
		page, err := tx.ListBlobs(q)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, b := range page {
			if q.After = b.Name; b.Name != name && !strings.HasPrefix(b.Name, name+"/") {
				continue
			}
			if err := f(b); err != nil {
				return err
			}
		}
	}
}
