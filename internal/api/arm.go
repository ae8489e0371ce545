package api

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// treeService walks /subscriptions/… to the service of what is named.
type treeService struct {
	defaultWorkspace berth.Workspace
	workspaces       *workspaceService
	groups           *groupService
	templates        *templateService
	docs             *documentService
	jobs             *jobService
	computes         *computeService
	sizes            *sizeService
	quotas           *quotaService
	costs            *costService
	storage          *storageService
	events           *eventService
}

// segments splits an escaped path; each segment is unescaped by itself, so an escaped slash stays
// inside one.
func segments(escaped string) ([]string, error) {
	escaped = strings.Trim(escaped, "/")
	if escaped == "" {
		return nil, nil
	}
	parts := strings.Split(escaped, "/")
	for i, p := range parts {
		u, err := url.PathUnescape(p)
		if err != nil || strings.ContainsRune(u, 0) {
			return nil, berth.Errorf(berth.Invalid, "the path segment %q is not valid", p)
		}
		parts[i] = u
	}
	return parts, nil
}

// fold compares a path segment with a name as ARM does: without case.
func fold(p []string, i int, name string) bool { return i < len(p) && strings.EqualFold(p[i], name) }

func notFound(c *call) error {
	return &berth.Error{Code: berth.NotFound, Wire: "ResourceNotFound", Msg: "there is nothing at " + c.r.URL.Path}
}

// notServed reports an Azure collection that this server does not serve. Reading it finds nothing;
// creating it is refused.
func (r *resource) notServed(c *call) error {
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead {
		return berth.Errorf(berth.NotFound, "this server has no %s yet", r.Noun)
	}
	return berth.Errorf(berth.Unsupported, "this server has no %s yet", r.Noun)
}

// elsewhere answers for what is not below a workspace. group is empty for what is directly below a
// subscription.
func (s *treeService) elsewhere(c *call, sub, group string, p []string) error {
	var r *resource
	if len(p) > 0 {
		r = s.docs.row(p[0])
	}
	switch {
	case r == nil:
	case r.Unserved:
		return r.notServed(c)
	case r.InGroup && group != "":
		return s.groups.inGroup(c, r, sub, group, p)
	case r.InGroup && len(p) == 1:
		return s.groups.acrossGroups(c, r, sub)
	}
	return notFound(c)
}

// arm walks /subscriptions/{sub}/… down to the handler of what is named.
func (s *treeService) arm(c *call) error {
	p, err := segments(c.r.URL.EscapedPath())
	if err != nil {
		return err
	}
	switch {
	case len(p) == 1:
		return s.listSubscriptions(c)
	case len(p) == 2:
		return s.subscription(c, p[1])
	case fold(p, 2, "providers") && fold(p, 3, berth.Provider):
		return s.provider(c, p[1], p[4:])
	case fold(p, 2, "resourceGroups"):
		return s.group(c, p[1], p[3:])
	}
	return notFound(c)
}

// provider serves what belongs to a subscription: locations and the list of workspaces.
func (s *treeService) provider(c *call, sub string, p []string) error {
	switch {
	case len(p) == 1 && fold(p, 0, "workspaces"):
		return s.workspaces.listWorkspaces(c, sub, "")
	case len(p) == 3 && fold(p, 0, "locations"):
		return s.sizes.location(c, sub, p[1], p[2])
	}
	return s.elsewhere(c, sub, "", p)
}

// group serves /subscriptions/{sub}/resourceGroups/….
func (s *treeService) group(c *call, sub string, p []string) error {
	switch {
	case len(p) == 0:
		return s.groups.listGroups(c, sub)
	case len(p) == 1:
		return s.groups.resourceGroup(c, sub, p[0])
	case fold(p, 1, "deployments"):
		return s.templates.deployments(c, sub, p[0], p[2:])
	case fold(p, 1, "providers") && fold(p, 2, "Microsoft.Resources") && fold(p, 3, "deployments"):
		return s.templates.deployments(c, sub, p[0], p[4:])
	case fold(p, 1, "providers") && fold(p, 2, berth.Provider) && fold(p, 3, "workspaces"):
		if len(p) == 4 {
			return s.workspaces.listWorkspaces(c, sub, p[0])
		}
		ws := berth.Workspace{Subscription: sub, Group: p[0], Name: p[4]}
		if len(p) == 5 {
			c.ws = ws
			return s.workspaces.workspace(c)
		}
		return s.inWorkspace(c, ws, p[5:])
	case fold(p, 1, "providers") && fold(p, 2, berth.Provider):
		return s.elsewhere(c, sub, p[0], p[3:])
	case len(p) == 5 && fold(p, 1, "providers") && beside[strings.ToLower(p[2]+"/"+p[3])] != "":
		return s.besideWorkspace(c, sub, p)
	}
	return notFound(c)
}

// besideWorkspace answers for what Azure keeps around a workspace, and this server does not. One
// that a workspace names is there as its name only, since clients ask for it when they delete a
// workspace with everything around it; there is nothing to delete.
func (s *treeService) besideWorkspace(c *call, sub string, p []string) error {
	what := strings.TrimPrefix(beside[strings.ToLower(p[2]+"/"+p[3])], "a ")
	id := "/subscriptions/" + sub + "/resourceGroups/" + strings.Join(p, "/")
	switch c.r.Method {
	case http.MethodDelete:
		return c.empty(http.StatusNoContent)
	case http.MethodGet, http.MethodHead:
		named, err := s.workspaces.names(c, id)
		if err != nil || !named {
			return orError(err, berth.Errorf(berth.NotFound, "there is nothing at %s: workspaces of this server need no %s", id, what))
		}
		return c.send(http.StatusOK, map[string]any{
			"id": id, "name": p[4], "type": p[2] + "/" + p[3], "location": s.workspaces.location,
			"properties": map[string]any{"provisioningState": "Succeeded", "berth": map[string]any{"note": "workspaces of this server need no " + what + "; this is its name only"}},
		})
	}
	return berth.Errorf(berth.Unsupported, "this server makes no %s/%s: its workspaces need no %s", p[2], p[3], what)
}

func orError(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// names says whether a workspace names a resource as one of those around it.
func (s *workspaceService) names(c *call, id string) (bool, error) {
	found := false
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		docs, err := tx.List(store.Query{Kind: kindWorkspace})
		for _, d := range docs {
			_, props, err := bodyOf(d)
			if err != nil {
				return err
			}
			for _, k := range []string{"storageAccount", "keyVault", "applicationInsights", "containerRegistry"} {
				found = found || strings.EqualFold(text(props, k), id)
			}
		}
		return err
	})
	return found, err
}

// enter finds the workspace and puts its canonical name into the call.
func (s *workspaceService) enter(c *call, ws berth.Workspace) error {
	known, err := s.findWorkspace(c.ctx(), ws)
	if err != nil {
		return err
	}
	c.ws = known
	return nil
}

// inWorkspace serves everything below a workspace.
func (s *treeService) inWorkspace(c *call, ws berth.Workspace, p []string) error {
	if err := s.workspaces.enter(c, ws); err != nil {
		return err
	}
	if len(p) == 1 {
		switch strings.ToLower(p[0]) {
		case "listkeys":
			return c.send(http.StatusOK, map[string]any{"userStorageKey": nil, "userStorageResourceId": nil})
		case "diagnose":
			return s.workspaces.diagnose(c)
		case "events":
			return s.events.events(c, c.ws.Key(), c.q.Get("subject"))
		case "endpointmetrics":
			return workspaceMetrics(c)
		}
	}
	if fold(p, 0, "quotas") || fold(p, 0, "quotaRequests") {
		return s.quotas.workspaceQuota(c, p)
	}
	if done, err := s.extra(c, p); done {
		return err
	}
	if fold(p, 0, "jobs") && len(p) >= 3 {
		if done, err := s.jobs.jobExtra(c, p); done {
			return err
		}
	}
	if r := s.docs.row(p[0]); r != nil && !r.InGroup {
		return s.docs.resource(c, r, p)
	}
	return notFound(c)
}

func (s *treeService) listSubscriptions(c *call) error {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return methodError(c)
	}
	subs := map[string]bool{s.defaultWorkspace.Subscription: true}
	all, err := s.workspaces.allWorkspaces(c.ctx())
	if err != nil {
		return err
	}
	for _, w := range all {
		subs[w.Subscription] = true
	}
	var value []any
	for sub := range subs {
		value = append(value, subscriptionDoc(sub))
	}
	return c.send(http.StatusOK, map[string]any{"value": value, "count": map[string]any{"type": "Total", "value": len(value)}})
}

func subscriptionDoc(sub string) map[string]any {
	return map[string]any{
		"id": "/subscriptions/" + sub, "subscriptionId": sub, "tenantId": auth.TenantID, "displayName": "berth", "state": "Enabled",
		"authorizationSource": "RoleBased", "managedByTenants": []any{},
	}
}

func (s *treeService) subscription(c *call, sub string) error {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return methodError(c)
	}
	return c.send(http.StatusOK, subscriptionDoc(sub))
}

func (s *treeService) tenants(c *call) error {
	return c.send(http.StatusOK, map[string]any{"value": []any{map[string]any{
		"id": "/tenants/" + auth.TenantID, "tenantId": auth.TenantID, "displayName": "berth", "defaultDomain": "berth.test",
	}}})
}

// row is the table's row of a collection, nil when there is none.
func (s *documentService) row(collection string) *resource {
	for i := range s.table {
		if strings.EqualFold(s.table[i].Collection, collection) {
			return &s.table[i]
		}
	}
	return nil
}
