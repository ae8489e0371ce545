package api

import (
	"cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// What a version of an asset means to those who name it is for its maker to end; an administrator
// may do it too.

// madeIt refuses to do something with a version, or with what holds versions, that somebody else
// made.
func (c *call) madeIt(r *resource, d *store.Doc, do string) error {
	if c.who.Role == auth.Admin || d.CreatedBy == c.who.User {
		return nil
	}
	title := r.Noun + " " + d.Name
	if d.Version != "" {
		title = versionTitle(r, d)
	}
	return berth.Errorf(berth.Denied, "%s was created by %s: only they or an administrator may %s it", title, cmp.Or(d.CreatedBy, "the server"), do)
}

// mayMake refuses a version, or a name, that was deleted to others than its maker.
func (c *call) mayMake(tx *store.Tx, r *resource, d *store.Doc) error {
	if c.who.Role == auth.Admin {
		return nil
	}
	maker, was, err := asset.Deleted(tx, d.Workspace, r.Collection, d.Name, d.Version)
	if err != nil || !was || maker == c.who.User {
		return err
	}
	title, other := versionTitle(r, d), "version"
	if d.Version == "" {
		title, other = r.Noun+" "+d.Name, "name"
	}
	return berth.Errorf(berth.Denied, "%s was deleted; only %s, who created it, or an administrator may create it again: choose another %s",
		title, cmp.Or(maker, "the server"), other)
}
