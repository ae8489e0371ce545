package control

import (
	"encoding/json"
	"fmt"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
)

// outside is a place in storage elsewhere, with the right of the task to have requests to it
// signed.
func (b builder) outside(p locate.Place, write bool) (*berth.Outside, error) {
	o := &berth.Outside{Datastore: p.Datastore}
	d, err := b.cy.tx.Get(b.ws.Key(), "datastores", p.Datastore, "")
	if err != nil {
		return o, err
	}
	s, err := locate.ReadDatastore(d)
	if err != nil {
		return o, err
	}
	grant, err := json.Marshal(locate.Grant{Datastore: d.Name, Path: p.Name, Write: write, User: b.user})
	if err != nil {
		return o, err
	}
	o.Protocol, o.At = s.Protocol(), s.At(p.Name)
	// What a datastore opens may be another thing after a change of it.
	o.Scope = fmt.Sprintf("%s/datastores/%s@%d %s", b.ws.Key(), d.Name, d.Rev, o.At)
	o.Grant = b.cy.c.o.Keys.Seal(grant, auth.StorageGrant(b.task))
	return o, nil
}
