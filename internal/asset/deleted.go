package asset

import (
	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// A name and a version mean one thing, to everybody who has written them down. Who made a version
// that was deleted is remembered, and only they make it again.

func kindDeleted(collection string) string { return collection + "/deleted" }

// Delete removes a version and remembers who made it first.
func Delete(tx *store.Tx, collection string, d *store.Doc) error {
	if err := tx.Delete(d.Workspace, d.Kind, d.Name, d.Version); err != nil {
		return err
	}
	_, was, err := Deleted(tx, d.Workspace, collection, d.Name, d.Version)
	if err != nil || was {
		return err
	}
	return tx.Insert(&store.Doc{Workspace: d.Workspace, Kind: kindDeleted(collection), Name: d.Name, Version: d.Version, CreatedBy: d.CreatedBy, Body: []byte("{}")})
}

// Deleted says whether a version was deleted once, and who had made it.
func Deleted(tx *store.Tx, workspace, collection, name, version string) (maker string, was bool, err error) {
	d, err := tx.Get(workspace, kindDeleted(collection), name, version)
	if berth.CodeOf(err) == berth.NotFound {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return d.CreatedBy, true, nil
}
