package api

import (
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// What package target calls so, as the rest of this package knows it.
const (
	serverless       = target.Serverless
	serverlessPrefix = target.Prefix
	serverlessSize   = target.Size
	serverlessNodes  = target.ServerlessNodes
)

// checkTarget is the name of the compute a job goes to.
func checkTarget(c *call, tx *store.Tx, raw json.RawMessage) (string, error) {
	var v berth.CommandJob
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	name, err := jobCall{c}.chooser(tx).Of(v)
	if err == nil {
		err = checkNeeds(c, tx, name, raw)
	}
	return name, err
}

func (c jobCall) chooser(tx *store.Tx) target.Chooser {
	return target.Chooser{
		Tx: tx, Workspace: c.ws, User: c.who.User, Admin: c.who.Role == auth.Admin, Location: c.s.Location, NoLocal: c.s.Local.Off,
		Size: func(name string, low bool) (berth.Size, error) {
			size, err := c.s.sizes.checkSize(c.call, tx, name, c.s.Location, berth.TypeCluster, low)
			if err == nil {
				_, err = c.s.sizes.fits(name, size)
			}
			return size, err
		},
	}
}
