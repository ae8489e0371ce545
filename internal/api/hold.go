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

// holder is what a version is called where its files are held, and whether that is in another
// workspace, which may have a version of the same name.
func (c *call) holder(tx *store.Tx, r *resource, d *store.Doc, container string) (title string, foreign bool, err error) {
	own, err := locate.StorageOf(tx, c.ws.Key())
	if container == own.Blobs || container == own.Artifacts {
		return versionTitle(r, d), false, err
	}
	return versionTitle(r, d) + " of workspace " + c.ws.Key(), true, err
}

// holdFiles keeps the files of a new version as they are, where they are ours.
func (c *call) holdFiles(tx *store.Tx, r *resource, d *store.Doc, props map[string]any) error {
	uri := locate.ContentURI(r.Collection, props)
	if uri == "" {
		return nil
	}
	place, err := c.s.Resolve(tx, c.ws, c.who.User, uri)
	if err != nil || !place.Ours() {
		return nil //nolint:nilerr // an address that leads nowhere holds nothing
	}
	title, foreign, err := c.holder(tx, r, d, place.Container)
	if err != nil {
		return err
	}
	if foreign {
		if err := blob.NoteForeign(tx, c.ws.Key(), place.Container, place.Name, title); err != nil {
			return err
		}
	}
	if ended, err := locate.OfEndedJob(tx, c.ws.Key(), place.Name); err != nil {
		return err
	} else if ended && !r.Runs {
		return blob.HoldAll(tx, place.Container, place.Name, title)
	}
	if !r.Runs {
		return blob.Hold(tx, place.Container, place.Name, title, c.who.User)
	}
	at, err := blob.HoldWhole(tx, place.Container, place.Name, title, c.who.User)
	if err == nil && at != place.Name {
		d.Own, err = locate.FixedMark(place.Container, at)
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
	place, err := c.s.Resolve(tx, c.ws, c.who.User, uri)
	if uri == "" || err != nil || !place.Ours() {
		return nil //nolint:nilerr // as above
	}
	title, foreign, err := c.holder(tx, r, d, place.Container)
	if err != nil {
		return err
	}
	if foreign {
		return blob.ReleaseForeign(tx, c.ws.Key(), place.Container, place.Name, title)
	}
	return blob.Release(tx, place.Container, place.Name, title)
}
