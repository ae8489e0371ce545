package api

import (
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// checkProvider refuses a cluster whose nodes could not be made where its tag says, and returns the
// attached compute that makes them, "" for the server's own machine. Where the nodes of a cluster
// are made cannot change.
func (c computeCall) checkProvider(tx *store.Tx, d *store.Doc, body map[string]any, created bool) (string, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	spec, err := berth.ReadPool(raw)
	if err != nil {
		return "", err
	}
	if !created {
		was, err := berth.ReadPool(d.Body)
		if err != nil || !strings.EqualFold(was.Provider, spec.Provider) {
			return "", berth.Errorf(berth.Conflict, "tag %s of cluster %s cannot be changed; create another cluster", berth.TagProvider, d.Name)
		}
	}
	if spec.Provider == "" {
		return "", nil
	}
	site, err := tx.Get(c.ws.Key(), "computes", spec.Provider, "")
	if berth.CodeOf(err) == berth.NotFound {
		return "", berth.Errorf(berth.Invalid, "tag %s: there is no compute %q in workspace %s; attach it first", berth.TagProvider, spec.Provider, c.ws.Name)
	}
	if err != nil {
		return "", err
	}
	if st, err := target.State(site); err != nil || st.Deleting() {
		return "", berth.Errorf(berth.Conflict, "tag %s: compute %s is being detached", berth.TagProvider, site.Name)
	}
	if err := target.MayUse(site, c.who.User, c.who.Role == auth.Admin); err != nil {
		return "", err
	}
	return site.Name, c.s.Attached.CheckProvider(site.Workspace, site.Name, site.Body)
}

// unprovided refuses to detach a compute that makes the nodes of a cluster.
func unprovided(tx *store.Tx, site *store.Doc) error {
	docs, err := tx.All(store.Query{Workspace: site.Workspace, Kind: "computes"})
	if err != nil {
		return err
	}
	for _, d := range docs {
		if spec, err := berth.ReadPool(d.Body); err == nil && strings.EqualFold(spec.Provider, site.Name) {
			return berth.Errorf(berth.Conflict, "compute %s makes the nodes of cluster %s; delete the cluster first", site.Name, d.Name)
		}
	}
	return nil
}
