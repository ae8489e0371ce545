package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/store"
)

// groupService serves resource groups, and the rows of the table that are below a resource group.
type groupService struct {
	db         *store.DB
	location   string
	docs       *documentService
	workspaces *workspaceService
}

const kindGroup = "resourceGroups"

func tenant() string { return auth.TenantID }

func (s *groupService) groupDoc(sub, name string, d *store.Doc) map[string]any {
	m := map[string]any{}
	if d != nil {
		if err := decodeJSON(d.Body, &m); err != nil {
			m = map[string]any{}
		}
	}
	m["id"], m["name"], m["type"] = "/subscriptions/"+sub+"/resourceGroups/"+name, name, "Microsoft.Resources/resourceGroups"
	setDefault(m, "location", s.location)
	m["properties"] = map[string]any{"provisioningState": "Succeeded"}
	return m
}

func groupKey(sub, name string) string { return strings.ToLower(sub + "/" + name) }

// groupPlace is where a workspace's resource group is, the server's own place when nobody made the
// group.
func (s *groupService) groupPlace(tx *store.Tx, ws berth.Workspace) (string, error) {
	d, err := tx.Get("", kindGroup, groupKey(ws.Subscription, ws.Group), "")
	if berth.CodeOf(err) == berth.NotFound {
		return s.location, nil
	}
	if err != nil {
		return "", err
	}
	return text(s.groupDoc(ws.Subscription, ws.Group, d), "location"), nil
}

// groupJSON is groupDoc encoded, in the order in which it was sent.
func (s *groupService) groupJSON(sub, name string, d *store.Doc) (json.RawMessage, error) {
	var like []byte
	if d != nil {
		like = d.Body
	}
	return ordered.Marshal(s.groupDoc(sub, name, d), like)
}

// groups is every resource group of a subscription, those that were made and those that hold a
// workspace.
func (s *groupService) groups(c *call, sub string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		docs, err := tx.List(store.Query{Kind: kindGroup, Parent: strings.ToLower(sub)})
		for _, d := range docs {
			_, name, _ := strings.Cut(d.Name, "/")
			if out[strings.ToLower(name)], err = s.groupJSON(sub, name, d); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	all, err := s.workspaces.allWorkspaces(c.ctx())
	if err != nil {
		return nil, err
	}
	for _, w := range all {
		if k := strings.ToLower(w.Group); strings.EqualFold(w.Subscription, sub) && out[k] == nil {
			if out[k], err = s.groupJSON(sub, w.Group, nil); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (s *groupService) listGroups(c *call, sub string) error {
	gs, err := s.groups(c, sub)
	if err != nil {
		return err
	}
	value := []any{}
	for _, g := range gs {
		value = append(value, g)
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

func (s *groupService) resourceGroup(c *call, sub, name string) error {
	gs, err := s.groups(c, sub)
	if err != nil {
		return err
	}
	g := gs[strings.ToLower(name)]
	switch c.r.Method {
	case http.MethodHead, http.MethodGet:
		if g == nil {
			return &berth.Error{Code: berth.NotFound, Wire: "ResourceGroupNotFound", Msg: "there is no resource group " + name}
		}
		if c.r.Method == http.MethodHead {
			return c.empty(http.StatusNoContent)
		}
		return c.sendJSON(http.StatusOK, g)
	case http.MethodPut, http.MethodPatch:
		return s.putGroup(c, sub, name, g == nil)
	case http.MethodDelete:
		return s.deleteGroup(c, sub, name)
	}
	return methodError(c)
}

func (s *groupService) putGroup(c *call, sub, name string, created bool) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may create resource groups")
	}
	if err := berth.CheckName("resource group", name); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	d, err := s.putServerDoc(c, kindGroup, sub+"/"+name, strings.ToLower(sub), body)
	if err != nil {
		return err
	}
	g, err := s.groupJSON(sub, name, d)
	if err != nil {
		return err
	}
	if created {
		return c.sendJSON(http.StatusCreated, g)
	}
	return c.sendJSON(http.StatusOK, g)
}

// deleteGroup deletes a resource group that holds nothing.
func (s *groupService) deleteGroup(c *call, sub, name string) error {
	if c.who.Role != auth.Admin {
		return berth.Errorf(berth.Denied, "only an administrator may delete resource groups")
	}
	all, err := s.workspaces.allWorkspaces(c.ctx())
	if err != nil {
		return err
	}
	for _, w := range all {
		if strings.EqualFold(w.Subscription, sub) && strings.EqualFold(w.Group, name) {
			return berth.Errorf(berth.Conflict, "resource group %s holds workspace %s; delete that first", name, w.Name)
		}
	}
	err = s.db.Update(c.ctx(), func(tx *store.Tx) error {
		held, err := tx.List(store.Query{Workspace: berth.Workspace{Subscription: sub, Group: name}.Key(), Kind: "registries", Limit: 1})
		if err != nil {
			return err
		}
		if len(held) > 0 {
			return berth.Errorf(berth.Conflict, "resource group %s holds registry %s; delete that first", name, held[0].Name)
		}
		if err := forgetDeployments(tx, sub, name); err != nil {
			return err
		}
		return tx.Delete("", kindGroup, groupKey(sub, name), "")
	})
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return err
	}
	return c.empty(http.StatusOK)
}

// putServerDoc writes a document that belongs to no workspace.
func (s *groupService) putServerDoc(c *call, kind, name, parent string, body map[string]any) (*store.Doc, error) {
	raw, err := ordered.Marshal(body, c.received)
	if err != nil {
		return nil, err
	}
	var d *store.Doc
	err = s.db.Update(c.ctx(), func(tx *store.Tx) error {
		d, err = tx.Get("", kind, name, "")
		if berth.CodeOf(err) == berth.NotFound {
			d = &store.Doc{Kind: kind, Name: name, Parent: parent, CreatedBy: c.who.User, Body: raw}
			return tx.Insert(d)
		}
		if err != nil {
			return err
		}
		d.Body = raw
		return tx.Save(d)
	})
	return d, err
}
