package api

import (
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// contentURI is where the files of a version of an asset are, and whether somebody runs them: then nothing may be added to them either.
func contentURI(collection string, props map[string]any) (uri string, runs bool) {
	switch collection {
	case "codes":
		return text(props, "codeUri"), true
	case "environments":
		return text(asMap(props["build"]), "contextUri"), true
	case "data":
		return text(props, "dataUri"), false
	case "models":
		return text(props, "modelUri"), false
	}
	return "", false
}

func versionTitle(r *resource, d *store.Doc) string {
	return r.Noun + " " + d.Name + ":" + d.Version
}

// holdFiles keeps the files of a new version as they are, where they are ours.
func (c *call) holdFiles(tx *store.Tx, r *resource, d *store.Doc, props map[string]any) error {
	uri, runs := contentURI(r.Collection, props)
	if uri == "" {
		return nil
	}
	place, err := c.s.Resolve(tx, c.ws, uri)
	if err != nil || !place.Ours() {
		return nil //nolint:nilerr // an address that leads nowhere holds nothing
	}
	if !runs {
		return blob.Hold(tx, place.Container, place.Name, versionTitle(r, d), c.who.User)
	}
	at, err := blob.HoldWhole(tx, place.Container, place.Name, versionTitle(r, d), c.who.User)
	if err == nil && at != place.Name {
		d.Own, err = locate.FixedAt(place.Container, at)
	}
	return err
}

// releaseFiles lets the files of a version that is deleted go.
func (c *call) releaseFiles(tx *store.Tx, r *resource, d *store.Doc) error {
	_, props, err := bodyOf(d)
	if err != nil {
		return err
	}
	uri, _ := contentURI(r.Collection, props)
	place, err := c.s.Resolve(tx, c.ws, uri)
	if uri == "" || err != nil || !place.Ours() {
		return nil //nolint:nilerr // as above
	}
	return blob.Release(tx, place.Container, place.Name, versionTitle(r, d))
}
