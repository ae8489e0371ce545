package api

import (
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// mayUse refuses a job of somebody who is not an administrator that names files of the server or
// options for containers which are not allowed. It is looked at again when the job starts: what it
// names by reference may have changed.
func (c *call) mayUse(tx *store.Tx, props map[string]any) error {
	if c.who.Role == auth.Admin {
		return nil
	}
	for _, side := range []string{"inputs", "outputs"} {
		for n, v := range asMap(props[side]) {
			m := asMap(v)
			write := side == "outputs" || locate.Writes(text(m, "mode"))
			if err := c.mayName(tx, text(m, "uri"), write); err != nil {
				return berth.Errorf(berth.CodeOf(err), "properties.%s.%s: %w", side, n, err)
			}
		}
	}
	for _, k := range []string{"dockerArgs", "dockerArgsList"} {
		raw, err := json.Marshal(asMap(props["resources"])[k])
		if err != nil {
			return err
		}
		if err := c.s.Allow.Options(raw); err != nil {
			return berth.Errorf(berth.CodeOf(err), "properties.resources.%s: %w", k, err)
		}
	}
	return nil
}

// mayName refuses a URI that leads to a file of the server. What leads nowhere is for others to
// refuse.
func (c *call) mayName(tx *store.Tx, uri string, write bool) error {
	if uri == "" {
		return nil
	}
	p, err := c.s.Resolve(tx, c.ws, c.who.User, uri)
	if err != nil {
		return nil //nolint:nilerr // a reference that is not there yet, or a binding
	}
	_, err = c.s.Allow.Permit(p, write)
	return err
}

// vouch refuses an asset at a file: URL of somebody who may not name that file. For one that an
// administrator registers it returns the mark by which others may read it.
func (c *call) vouch(r *resource, props map[string]any) (json.RawMessage, error) {
	uri := locate.ContentURI(r.Collection, props)
	if !locate.IsFile(uri) {
		return nil, nil
	}
	if c.who.Role == auth.Admin {
		return locate.VouchedMark(), nil
	}
	if _, err := c.s.Allow.File(uri); err != nil {
		return nil, berth.Errorf(berth.CodeOf(err), "properties.%s: %w", locate.ContentField(r.Collection), err)
	}
	return nil, nil
}
