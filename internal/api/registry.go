package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// Registries are documents so far. They are not below a workspace but below a resource group, which
// stands in for one in the store.

func shapeRegistry(_ *call, _ *store.Doc, p map[string]any) { p["provisioningState"] = "Succeeded" }

// inGroup serves what is directly below a resource group.
func (s *groupService) inGroup(c *call, r *resource, sub, group string, p []string) error {
	if err := s.enterGroup(c, sub, group); err != nil {
		return err
	}
	if c.who.Role != auth.Admin && c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return berth.Errorf(berth.Denied, "only an administrator may change what is in a resource group")
	}
	return s.docs.resource(c, r, p)
}

// enterGroup finds a resource group and puts its name into the call.
func (s *groupService) enterGroup(c *call, sub, group string) error {
	groups, err := s.groups(c, sub)
	if err != nil {
		return err
	}
	for _, raw := range groups {
		var g struct{ Name string }
		if err := json.Unmarshal(raw, &g); err != nil {
			return err
		}
		if groupKey(sub, g.Name) == groupKey(sub, group) {
			c.ws = berth.Workspace{Subscription: sub, Group: g.Name}
			return nil
		}
	}
	return &berth.Error{Code: berth.NotFound, Wire: "ResourceGroupNotFound", Msg: "there is no resource group " + group}
}

// acrossGroups lists what all resource groups of a subscription have.
func (s *groupService) acrossGroups(c *call, r *resource, sub string) error {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return methodError(c)
	}
	groups, err := s.groups(c, sub)
	if err != nil {
		return err
	}
	value := []any{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if err := s.enterGroup(c, sub, name); err != nil {
			return err
		}
		var docs []*store.Doc
		err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
			docs, err = tx.All(store.Query{Workspace: c.ws.Key(), Kind: r.Collection})
			return err
		})
		if err != nil {
			return err
		}
		some, err := listCall{c}.renderAll(r, docs)
		if err != nil {
			return err
		}
		value = append(value, some...)
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}
