package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// workspaceService serves workspaces, and finds the one a request names.
type workspaceService struct {
	locate.Locator
	db               *store.DB
	location         string
	defaultWorkspace berth.Workspace
	found            sync.Map // workspace key → foundWorkspace
	groups           *groupService
}

const kindWorkspace = "workspaces"

// ensureWorkspace creates a workspace when it is not there: its storage, its datastores and the
// compute `local`.
func (s *workspaceService) ensureWorkspace(ctx context.Context, ws berth.Workspace, by string) error {
	return s.db.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Get("", kindWorkspace, ws.Key(), "")
		if berth.CodeOf(err) != berth.NotFound {
			return err
		}
		body, err := json.Marshal(map[string]any{"location": s.location, "tags": map[string]any{}, "properties": map[string]any{"friendlyName": ws.Name}})
		if err != nil {
			return err
		}
		return s.createWorkspace(tx, ws, by, body)
	})
}

func (s *workspaceService) createWorkspace(tx *store.Tx, ws berth.Workspace, by string, body json.RawMessage) error {
	own := locate.NewStorage()
	raw, err := json.Marshal(own)
	if err != nil {
		return err
	}
	d := &store.Doc{Kind: kindWorkspace, Name: ws.Key(), Parent: ws.ID(), CreatedBy: by, Body: body, Own: raw}
	if err := tx.Insert(d); err != nil {
		return err
	}
	for name, container := range map[string]string{defaultDatastore: own.Blobs, artifactDatastore: own.Artifacts} {
		mark, err := json.Marshal(datastoreOwn{Container: container})
		if err != nil {
			return err
		}
		if err := tx.Insert(&store.Doc{Workspace: ws.Key(), Kind: "datastores", Name: name, CreatedBy: by, Body: json.RawMessage(`{"properties":{}}`), Own: mark}); err != nil {
			return err
		}
	}
	local := json.RawMessage(`{"properties":{"computeType":"VirtualMachine","description":"this machine","properties":{"address":"127.0.0.1"}}}`)
	if err := tx.Insert(&store.Doc{Workspace: ws.Key(), Kind: "computes", Name: berth.LocalCompute, CreatedBy: by, Body: local}); err != nil {
		return err
	}
	tx.Emit(berth.Event{Workspace: ws.Key(), Subject: "workspaces/" + ws.Name, Type: berth.EventResourcePut, Reason: "workspace made by " + by})
	return nil
}

// workspaceLife is how long a workspace that was found is not looked for again. Another server may
// delete it meanwhile; then its documents are not found either.
const workspaceLife = time.Second

// foundWorkspace is an entry of the cache of findWorkspace.
type foundWorkspace struct {
	ws       berth.Workspace
	tracking track.Workspace
	at       time.Time
}

// findWorkspace is the workspace in the casing it was made with.
func (s *workspaceService) findWorkspace(ctx context.Context, ws berth.Workspace) (berth.Workspace, error) {
	f, err := s.lookUpWorkspace(ctx, ws)
	return f.ws, err
}

func (s *workspaceService) lookUpWorkspace(ctx context.Context, ws berth.Workspace) (foundWorkspace, error) {
	if f, ok := s.found.Load(ws.Key()); ok && time.Since(f.(foundWorkspace).at) < workspaceLife {
		return f.(foundWorkspace), nil
	}
	out := foundWorkspace{ws: ws, at: time.Now()}
	err := s.db.View(ctx, func(tx *store.Tx) error {
		d, err := tx.Get("", kindWorkspace, ws.Key(), "")
		if err != nil {
			return err
		}
		out.tracking, err = track.WorkspaceOf(d)
		out.ws = out.tracking.Of
		return err
	})
	if berth.CodeOf(err) == berth.NotFound {
		return out, &berth.Error{Code: berth.NotFound, Msg: "there is no workspace " + ws.Name + " in resource group " + ws.Group + " (not found)"}
	}
	if err == nil {
		s.found.Store(ws.Key(), out)
	}
	return out, err
}

func (s *workspaceService) allWorkspaces(ctx context.Context) ([]berth.Workspace, error) {
	var out []berth.Workspace
	err := s.db.View(ctx, func(tx *store.Tx) error {
		docs, err := tx.List(store.Query{Kind: kindWorkspace, Asc: true})
		for _, d := range docs {
			ws, err := locate.WorkspaceOf(d)
			if err != nil {
				return err
			}
			out = append(out, ws)
		}
		return err
	})
	return out, err
}

func (s *workspaceService) listWorkspaces(c *call, sub, group string) error {
	if c.r.Method != http.MethodGet {
		return methodError(c)
	}
	value := []any{}
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		docs, err := tx.List(store.Query{Kind: kindWorkspace, Asc: true})
		for _, d := range docs {
			ws, err := locate.WorkspaceOf(d)
			if err != nil {
				return err
			}
			if !strings.EqualFold(ws.Subscription, sub) || (group != "" && !strings.EqualFold(ws.Group, group)) {
				continue
			}
			m, err := s.renderWorkspace(ws, d)
			if err != nil {
				return err
			}
			b, err := ordered.Marshal(m, d.Body)
			if err != nil {
				return err
			}
			value = append(value, json.RawMessage(b))
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, map[string]any{"value": value})
}

func (s *workspaceService) renderWorkspace(ws berth.Workspace, d *store.Doc) (map[string]any, error) {
	m := map[string]any{}
	if err := decodeJSON(d.Body, &m); err != nil {
		return nil, err
	}
	own, err := store.State[locate.Storage](d)
	if err != nil {
		return nil, err
	}
	props, err := object(m, "properties")
	if err != nil {
		return nil, err
	}
	m["id"], m["name"], m["type"] = ws.ID(), ws.Name, berth.Provider+"/workspaces"
	m["systemData"] = systemData(d, zulu)
	setDefault(m, "location", s.location)
	setDefault(m, "kind", "Default")
	setDefault(m, "tags", map[string]any{})
	setDefault(m, "sku", map[string]any{"name": "Basic", "tier": "Basic"})
	setDefault(m, "identity", map[string]any{"type": "SystemAssigned", "tenantId": tenant(), "principalId": own.ID})
	setDefault(props, "friendlyName", ws.Name)
	setDefault(props, "description", "")
	props["workspaceId"] = own.ID
	props["discoveryUrl"] = s.BaseURL + "/discovery"
	props["mlFlowTrackingUri"] = ws.AzureTrackingURI(s.BaseURL)
	props["provisioningState"] = "Succeeded"
	account := "/subscriptions/" + ws.Subscription + "/resourceGroups/" + ws.Group + "/providers/Microsoft.Storage/storageAccounts/" + s.Account
	setDefault(props, "storageAccount", account)
	props["tenantId"] = tenant()
	props["creationTime"] = zulu(d.Created)
	for k, v := range plainWorkspace() {
		if _, ok := props[k]; !ok {
			props[k] = v
		}
	}
	return m, nil
}

// plainWorkspace is what a workspace says of which nobody asked for more: nothing of Azure's around
// it, and no network of its own.
func plainWorkspace() map[string]any {
	return map[string]any{
		"keyVault": "", "applicationInsights": "", "containerRegistry": nil, "imageBuildCompute": nil, "serverlessComputeSettings": nil,
		"publicNetworkAccess": "Enabled", "managedNetwork": map[string]any{"isolationMode": "Disabled"}, "ipAllowlist": []any{}, "privateLinkCount": 0,
		"hbiWorkspace": false, "v1LegacyMode": false, "softDeleteEnabled": false, "storageHnsEnabled": false, "enableDataIsolation": false,
		"systemDatastoresAuthMode": "accesskey",
	}
}

// workspace serves the workspace itself.
func (s *workspaceService) workspace(c *call) error {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		return s.showWorkspace(c, http.StatusOK)
	case http.MethodPut, http.MethodPatch:
		body, err := c.body()
		if err != nil {
			return err
		}
		if err := s.putWorkspace(c, c.ws, body, c.r.Method == http.MethodPatch); err != nil {
			return err
		}
		c.operation("put", c.ws.ID())
		return s.showWorkspace(c, http.StatusOK)
	case http.MethodDelete:
		return s.deleteWorkspace(c)
	}
	return methodError(c)
}

func (s *workspaceService) showWorkspace(c *call, status int) error {
	if err := s.enter(c, c.ws); err != nil {
		return err
	}
	var m map[string]any
	var d *store.Doc
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		if d, err = tx.Get("", kindWorkspace, c.ws.Key(), ""); err != nil {
			return err
		}
		m, err = s.renderWorkspace(c.ws, d)
		return err
	})
	if err != nil {
		return err
	}
	return c.sendLike(status, m, d)
}

// putWorkspace creates or updates a workspace.
func (s *workspaceService) putWorkspace(c *call, ws berth.Workspace, body map[string]any, patch bool) error {
	if c.who.Role != "admin" {
		return berth.Errorf(berth.Denied, "only an administrator may create or change workspaces")
	}
	for noun, name := range map[string]string{"workspace": ws.Name, "resource group": ws.Group, "subscription": ws.Subscription} {
		if err := berth.CheckName(noun, name); err != nil {
			return err
		}
	}
	if err := checkForm(&resource{}, body); err != nil {
		return err
	}
	stripReadOnly(body)
	return s.db.Update(c.ctx(), func(tx *store.Tx) error {
		d, err := tx.Get("", kindWorkspace, ws.Key(), "")
		if berth.CodeOf(err) == berth.NotFound {
			if patch {
				return berth.Errorf(berth.NotFound, "there is no workspace %s", ws.Name)
			}
			if text(body, "location") == "" {
				if body["location"], err = s.groups.groupPlace(tx, ws); err != nil {
					return err
				}
			}
			raw, err := ordered.Marshal(body, c.received)
			if err != nil {
				return err
			}
			return s.createWorkspace(tx, ws, c.who.User, raw)
		}
		if err != nil {
			return err
		}
		old := map[string]any{}
		if err := decodeJSON(d.Body, &old); err != nil {
			return err
		}
		overlay(old, body)
		if t, ok := body["tags"]; ok {
			old["tags"] = t
		}
		if d.Body, err = ordered.Marshal(old, d.Body, c.received); err != nil {
			return err
		}
		return tx.Save(d)
	})
}

// deleteWorkspace removes an empty or finished workspace; the default one stays.
func (s *workspaceService) deleteWorkspace(c *call) error {
	if c.who.Role != "admin" {
		return berth.Errorf(berth.Denied, "only an administrator may delete workspaces")
	}
	if c.ws.Key() == s.defaultWorkspace.Key() {
		return berth.Errorf(berth.Conflict, "workspace %s is the server's default and cannot be deleted", c.ws.Name)
	}
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		active, err := tx.List(store.Query{Workspace: c.ws.Key(), Kind: "jobs", Status: berth.StatusTexts(berth.ActiveStatuses), Limit: 1})
		if err != nil {
			return err
		}
		if len(active) > 0 {
			return berth.Errorf(berth.Conflict, "job %s of workspace %s has not ended; cancel it first", active[0].Name, c.ws.Name)
		}
		computes, err := tx.List(store.Query{Workspace: c.ws.Key(), Kind: "computes", Limit: 2, NoBody: true})
		if err != nil {
			return err
		}
		for _, d := range computes { // their nodes would be left behind
			if !berth.IsLocal(d.Name) {
				return berth.Errorf(berth.Conflict, "workspace %s has compute %s; delete it first", c.ws.Name, d.Name)
			}
		}
		own, err := locate.StorageOf(tx, c.ws.Key())
		if err != nil {
			return err
		}
		if err := track.Forget(tx, own.ID); err != nil {
			return err
		}
		if err := blob.ForgetWorkspace(tx, c.ws.Key(), own.Blobs, own.Artifacts); err != nil {
			return err
		}
		for _, container := range []string{own.Blobs, own.Artifacts} {
			if _, err := tx.DeleteBlobs(container, ""); err != nil {
				return err
			}
		}
		if err := quota.Forget(tx, c.ws.Key()); err != nil {
			return err
		}
		if err := tx.DeleteWorkspace(c.ws.Key()); err != nil {
			return err
		}
		return tx.Delete("", kindWorkspace, c.ws.Key(), "")
	})
	s.found.Delete(c.ws.Key())
	if berth.CodeOf(err) == berth.NotFound {
		return c.empty(http.StatusNoContent)
	}
	if err != nil {
		return err
	}
	return c.empty(http.StatusOK)
}

// defaultContainer is the container of a workspace's default datastore.
func (s *workspaceService) defaultContainer(ctx context.Context, ws berth.Workspace) (string, error) {
	own, err := s.storage(ctx, ws)
	return own.Blobs, err
}

// storage is where a workspace keeps its bytes.
func (s *workspaceService) storage(ctx context.Context, ws berth.Workspace) (locate.Storage, error) {
	var own locate.Storage
	err := s.db.View(ctx, func(tx *store.Tx) (err error) {
		own, err = locate.StorageOf(tx, ws.Key())
		return err
	})
	return own, err
}

func (s *workspaceService) diagnose(c *call) error {
	out := map[string]any{}
	for _, k := range []string{
		"userDefinedRouteResults", "networkSecurityRuleResults", "resourceLockResults", "dnsResolutionResults", "storageAccountResults",
		"keyVaultResults", "containerRegistryResults", "applicationInsightsResults", "otherResults",
	} {
		out[k] = []any{}
	}
	return c.send(http.StatusOK, map[string]any{"value": out})
}
