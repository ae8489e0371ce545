package blob

import (
	"strings"

	"github.com/berthml/berth/internal/store"
)

// Erase deletes what lies in a folder, save what versions consist of.
func Erase(tx *store.Tx, container, folder string) error {
	return below(tx, container, strings.TrimRight(folder, "/"), func(b *store.Blob) error {
		_, err := EraseOne(tx, b)
		return err
	})
}

// EraseOne deletes a blob unless a version consists of it.
func EraseOne(tx *store.Tx, b *store.Blob) (erased bool, err error) {
	r, err := restrained(tx, b.Container, b.Name, "")
	if err != nil || r.version != "" {
		return false, err
	}
	if err := tx.DeleteBlob(b.Container, b.Name); err != nil {
		return false, err
	}
	return true, changed(tx, b.Container, r.named)
}

// VersionBelow is a registered version that something in a folder is a part of, "" where there is
// none.
func VersionBelow(tx *store.Tx, container, folder string) (version string, err error) {
	err = below(tx, container, strings.TrimRight(folder, "/"), func(b *store.Blob) error {
		v, err := VersionAt(tx, b)
		if v != "" {
			version = v
		}
		return err
	})
	return version, err
}

// VersionAt is a registered version that a blob is a part of, "" where there is none.
func VersionAt(tx *store.Tx, b *store.Blob) (string, error) {
	r, err := restrained(tx, b.Container, b.Name, "")
	return r.version, err
}
