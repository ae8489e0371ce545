package asset

import (
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// A name and a version mean one thing, to everybody who has written them down. Who made a version
// that was deleted is remembered, and only they make it again.

func kindDeleted(collection string) string { return collection + "/deleted" }

// Delete removes a version and remembers who made it first. The container goes with its last
// version; versions that are made later are numbered on.
func Delete(tx *store.Tx, collection string, d *store.Doc) error {
	if err := tx.Delete(d.Workspace, d.Kind, d.Name, d.Version); err != nil {
		return err
	}
	if d.Version != "" {
		if err := leave(tx, collection, d); err != nil {
			return err
		}
	}
	_, was, err := Deleted(tx, d.Workspace, collection, d.Name, d.Version)
	if err != nil || was {
		return err
	}
	return tx.Insert(&store.Doc{Workspace: d.Workspace, Kind: kindDeleted(collection), Name: d.Name, Version: d.Version, CreatedBy: d.CreatedBy, Body: []byte("{}")})
}

// leave brings the container of a version that was deleted up to date.
func leave(tx *store.Tx, collection string, version *store.Doc) error {
	own, d, err := container(tx, version.Workspace, collection, version.Name)
	if err != nil || d == nil {
		return err
	}
	newest, err := tx.List(store.Query{Workspace: version.Workspace, Kind: version.Kind, Name: version.Name, Limit: 1, NoBody: true})
	switch {
	case err != nil:
		return err
	case len(newest) > 0 && own.Latest != version.Version:
		return nil
	case len(newest) > 0:
		own.Latest = newest[0].Version
		if d.Own, err = json.Marshal(own); err != nil {
			return err
		}
		return tx.Save(d)
	}
	if err := tx.Delete(d.Workspace, d.Kind, d.Name, ""); err != nil {
		return err
	}
	last, err := json.Marshal(Container{Next: own.Next})
	if err != nil {
		return err
	}
	kept, err := tx.Get(d.Workspace, kindDeleted(collection), d.Name, "")
	if berth.CodeOf(err) == berth.NotFound {
		return tx.Insert(&store.Doc{Workspace: d.Workspace, Kind: kindDeleted(collection), Name: d.Name, CreatedBy: d.CreatedBy, Body: []byte("{}"), Own: last})
	}
	if err != nil {
		return err
	}
	kept.Own = last
	return tx.Save(kept)
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
