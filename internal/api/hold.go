package api

import (
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

func versionTitle(r *resource, d *store.Doc) string {
	return asset.Title(r.Noun, d.Name, d.Version)
}

// holdFiles keeps the files of a new version as they are, where they are ours.
func (c *call) holdFiles(tx *store.Tx, r *resource, d *store.Doc, props map[string]any) error {
	uri := locate.ContentURI(r.Collection, props)
	if uri == "" {
		return nil
	}
	place, err := c.s.Resolve(tx, c.ws, uri)
	if err != nil || !place.Ours() {
		return nil //nolint:nilerr // an address that leads nowhere holds nothing
	}
	if ended, err := locate.OfEndedJob(tx, c.ws.Key(), place.Name); err != nil {
		return err
	} else if ended && !r.Runs {
		return blob.HoldAll(tx, place.Container, place.Name, versionTitle(r, d))
	}
	if !r.Runs {
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
	uri := locate.ContentURI(r.Collection, props)
	place, err := c.s.Resolve(tx, c.ws, uri)
	if uri == "" || err != nil || !place.Ours() {
		return nil //nolint:nilerr // as above
	}
	return blob.Release(tx, place.Container, place.Name, versionTitle(r, d))
}
