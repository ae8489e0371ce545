package blob

import (
	"strings"

	"github.com/berthml/berth/internal/store"
)

// Erase deletes what lies in a folder, save what versions consist of.
func Erase(tx *store.Tx, container, folder string) error {
	return below(tx, container, strings.TrimRight(folder, "/"), func(b *store.Blob) error {
		r, err := restrained(tx, container, b.Name, "")
		if err != nil || r.version != "" {
			return err
		}
		if err := tx.DeleteBlob(container, b.Name); err != nil {
			return err
		}
		return changed(tx, container, r.named)
	})
}
