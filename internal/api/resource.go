package api

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/store"
)

// documentService serves the resources of the table: lists, items, versions and actions, in one
// manner for all.
type documentService struct {
	locate.Locator
	db        *store.DB
	authority *auth.Authority // seals secrets
	table     []resource
}

// resource serves one collection: list, item, versions, actions.
func (s *documentService) resource(c *call, r *resource, p []string) error {
	switch {
	case r.Unserved:
		return r.notServed(c)
	case len(p) == 1:
		return s.list(c, r, r.Collection, "")
	case len(p) == 2:
		return s.item(c, r, p[1], "")
	case r.Child != "" && len(p) == 3 && fold(p, 2, r.Child):
		return s.list(c, r, r.Collection+"/"+r.Child, p[1])
	case r.Child == "versions" && len(p) == 4 && fold(p, 2, "labels"):
		return s.label(c, r, p[1], p[3])
	case r.Child != "" && len(p) == 4 && fold(p, 2, r.Child):
		return s.item(c, r, p[1], p[3])
	case r.Child != "versions" && len(p) == 3:
		return s.action(c, r, p[1], "", p[2])
	case r.Child != "" && len(p) == 5 && fold(p, 2, r.Child):
		return s.action(c, r, p[1], p[3], p[4])
	}
	return notFound(c)
}

func (s *documentService) action(c *call, r *resource, name, version, verb string) error {
	act, ok := r.Actions[strings.ToLower(verb)]
	if !ok {
		return notFound(c)
	}
	if c.r.Method != http.MethodPost {
		return methodError(c)
	}
	return act(c, r, name, version)
}

func (s *documentService) item(c *call, r *resource, name, version string) error {
	switch c.r.Method {
	case http.MethodGet, http.MethodHead:
		d, err := s.load(c, r, name, version)
		if err != nil {
			return err
		}
		if version == defaultVersion {
			return c.sendDefault(r, d)
		}
		return c.sendDoc(http.StatusOK, r, d)
	case http.MethodPut, http.MethodPatch:
		if r.Put != nil {
			return r.Put(c, r, name)
		}
		return s.put(c, r, name, version)
	case http.MethodDelete:
		if r.Delete != nil {
			return r.Delete(c, r, name)
		}
		return s.remove(c, r, name, version)
	}
	return methodError(c)
}

// remove deletes one document; one that is not there is no error.
func (s *documentService) remove(c *call, r *resource, name, version string) error {
	kind := r.kind(version)
	err := s.db.Update(c.ctx(), func(tx *store.Tx) error {
		if err := c.ifMatch(tx, kind, name, version); err != nil {
			return err
		}
		d, err := tx.Get(c.ws.Key(), kind, name, version)
		if err != nil {
			return err
		}
		if r.CheckDelete != nil {
			if err := r.CheckDelete(c, tx, d); err != nil {
				return err
			}
		}
		if err := c.removeDoc(tx, r, d); err != nil {
			return err
		}
		c.emit(tx, berth.EventResourceDel, r, name, version)
		return nil
	})
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return err
	}
	return c.empty(map[bool]int{true: http.StatusOK, false: http.StatusNoContent}[err == nil])
}

func (c *call) removeDoc(tx *store.Tx, r *resource, d *store.Doc) error {
	if r.MakerOnly || r.Child == "versions" {
		if err := c.madeIt(r, d, "delete"); err != nil {
			return err
		}
	}
	if r.Child != "versions" {
		return r.removeWithChildren(tx, d)
	}
	if d.Version == "" {
		versions, err := tx.All(store.Query{Workspace: d.Workspace, Kind: r.Collection + "/versions", Name: d.Name})
		if err != nil {
			return err
		}
		for _, v := range versions {
			if err := c.removeDoc(tx, r, v); err != nil {
				return err
			}
		}
		if len(versions) > 0 {
			return nil // it went with the last of them
		}
		return tx.Delete(d.Workspace, d.Kind, d.Name, "")
	}
	if err := c.releaseFiles(tx, r, d); err != nil {
		return err
	}
	return asset.Delete(tx, r.Collection, d)
}

// removeWithChildren deletes a document, and what is below it.
func (r *resource) removeWithChildren(tx *store.Tx, d *store.Doc) error {
	if r.Child != "" && d.Version == "" {
		children, err := tx.All(store.Query{Workspace: d.Workspace, Kind: r.Collection + "/" + r.Child, Name: d.Name, NoBody: true})
		if err != nil {
			return err
		}
		for _, child := range children {
			if err := tx.Delete(child.Workspace, child.Kind, child.Name, child.Version); err != nil {
				return err
			}
		}
	}
	if r.KeepsName && d.Version == "" {
		return asset.Delete(tx, r.Collection, d)
	}
	return tx.Delete(d.Workspace, d.Kind, d.Name, d.Version)
}

func (r *resource) kind(version string) string {
	if version != "" {
		return r.Collection + "/" + r.Child
	}
	return r.Collection
}

// load reads one document, with a message that says what is missing.
func (s *documentService) load(c *call, r *resource, name, version string) (*store.Doc, error) {
	var d *store.Doc
	err := s.db.View(c.ctx(), func(tx *store.Tx) error {
		var err error
		if version == defaultVersion {
			d, err = latest(tx, c.ws.Key(), r, name)
			return err
		}
		d, err = tx.Get(c.ws.Key(), r.kind(version), name, version)
		return err
	})
	if berth.CodeOf(err) == berth.NotFound && r.Always != nil {
		if d, ok, err := r.Always(c, name, version); ok || err != nil {
			return d, err
		}
	}
	return d, c.missing(err, r, name, version)
}

// defaultVersion is the pseudo-version with which clients ask for a component's default.
const defaultVersion = "azureml_default"

// sendDefault answers for the pseudo-version: the version itself, under the id of the label.
func (c *call) sendDefault(r *resource, d *store.Doc) error {
	m, err := c.render(r, d)
	if err != nil {
		return err
	}
	m["id"] = c.ws.ResourceID(r.Collection, d.Name, "labels", "default")
	return c.sendLike(http.StatusOK, m, d)
}

// unknown is what the service calls it to name something that is not there: an error of the user's,
// as a rule.
func (r *resource) unknown() string {
	if r.PlainMissing {
		return ""
	}
	return usersError
}

func (c *call) missing(err error, r *resource, name, version string) error {
	if berth.CodeOf(err) != berth.NotFound {
		return err
	}
	what := r.Noun + " " + strconv.Quote(name)
	switch {
	case version != "" && r.ChildNoun != "":
		what = r.ChildNoun + " " + strconv.Quote(version) + " of " + r.Noun + " " + name
	case version != "":
		what = r.Noun + " " + strconv.Quote(name+":"+version)
	}
	where := "workspace " + c.ws.Name
	if r.InGroup {
		where = "resource group " + c.ws.Group
	}
	return &berth.Error{Code: berth.NotFound, Wire: r.unknown(), Msg: "there is no " + what + " in " + where + " (not found)"}
}

// latest is the newest version.
func latest(tx *store.Tx, ws string, r *resource, name string) (*store.Doc, error) {
	d, err := locate.Newest(tx, ws, r.Collection+"/"+r.Child, name)
	if err == nil && d == nil {
		err = berth.Errorf(berth.NotFound, "%s has no version", name)
	}
	return d, err
}

func (s *documentService) label(c *call, r *resource, name, label string) error {
	if r.Collection == "models" && !locate.IsNewest(label) {
		return s.alias(c, r, name, label)
	}
	if !locate.IsNewest(label) {
		return &berth.Error{Code: berth.NotFound, Wire: r.unknown(), Msg: fmt.Sprintf("%s %s has no label %q; the labels are latest and default", r.Noun, name, label)}
	}
	var d *store.Doc
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		d, err = latest(tx, c.ws.Key(), r, name)
		return err
	})
	if berth.CodeOf(err) == berth.NotFound && r.Always != nil {
		always, ok, fault := r.Always(c, name, r.Newest)
		if fault != nil {
			return fault
		}
		if ok {
			return c.sendDoc(http.StatusOK, r, always)
		}
	}
	if err != nil {
		return c.missing(err, r, name, "")
	}
	return c.sendDoc(http.StatusOK, r, d)
}

// alias answers with the version of a model that an alias of MLflow's registry points to.
func (s *documentService) alias(c *call, r *resource, name, alias string) error {
	var d *store.Doc
	err := s.db.View(c.ctx(), func(tx *store.Tx) (err error) {
		d, err = locate.Labelled(tx, c.ws, r.Collection, name, alias)
		return err
	})
	if berth.IsMissing(err) {
		return &berth.Error{Code: berth.NotFound, Wire: r.unknown(), Msg: err.Error()}
	}
	if err != nil {
		return err
	}
	return c.sendDoc(http.StatusOK, r, d)
}

// bodyOf is a document and its properties, to be changed at will.
func bodyOf(d *store.Doc) (body, props map[string]any, err error) {
	body = map[string]any{}
	if err := decodeJSON(d.Body, &body); err != nil {
		return nil, nil, err
	}
	props, err = object(body, "properties")
	return body, props, err
}

// docID is a document's ARM id, in canonical casing.
func (c *call) docID(r *resource, d *store.Doc) string {
	if r.InGroup {
		return "/subscriptions/" + c.ws.Subscription + "/resourceGroups/" + c.ws.Group + "/providers/" + berth.Provider + "/" + r.Collection + "/" + d.Name
	}
	if d.Version != "" {
		return c.ws.ResourceID(r.Collection, d.Name, r.Child, d.Version)
	}
	return c.ws.ResourceID(r.Collection, d.Name)
}

// render is a document as clients see it: what they sent, and what we own.
func (c *call) render(r *resource, d *store.Doc) (map[string]any, error) {
	m := map[string]any{}
	if err := decodeJSON(d.Body, &m); err != nil {
		return nil, err
	}
	c.sealOlder(d, m)
	return m, c.addServerFields(r, d, m)
}

// addServerFields adds what we own to m, which is d's body.
func (c *call) addServerFields(r *resource, d *store.Doc, m map[string]any) error {
	props, err := object(m, "properties")
	if err != nil {
		return err
	}
	m["id"] = c.docID(r, d)
	m["name"] = d.Name
	m["type"] = berth.Provider + "/workspaces/" + r.Collection
	if d.Version != "" {
		m["name"] = d.Version
		m["type"] = berth.Provider + "/workspaces/" + r.Collection + "/" + r.Child
	}
	if r.InGroup {
		m["type"] = berth.Provider + "/" + r.Collection
	}
	m["systemData"] = systemData(d, stamp)
	if r.Zulu {
		m["systemData"] = systemData(d, zulu)
	}
	if r.Tracked {
		setDefault(m, "location", c.s.Location)
		setDefault(m, "tags", map[string]any{})
	}
	switch {
	case r.Child == "versions" && d.Version == "":
		own, err := store.State[asset.Container](d)
		if err != nil {
			return err
		}
		props["latestVersion"], props["nextVersion"] = nil, cmp.Or(own.Next, "1")
		if own.Latest != "" {
			props["latestVersion"] = own.Latest
		}
		if r.Next != nil {
			props["nextVersion"] = r.Next(c, own.Latest)
		}
		props["isArchived"] = d.Archived
		orNull(props, "description")
		setDefault(props, "tags", map[string]any{})
		setDefault(props, "properties", map[string]any{})
		if r.ShapeContainer != nil {
			r.ShapeContainer(c, d, props)
		}
	case r.Shape != nil:
		r.Shape(c, d, props)
	}
	if r.Inert != "" {
		props["berth"] = map[string]any{"warnings": []any{r.Inert}}
	}
	return nil
}

func (c *call) sendDoc(status int, r *resource, d *store.Doc) error {
	m, err := c.render(r, d)
	if err != nil {
		return err
	}
	return c.sendBody(status, d, m)
}

// sendBody answers with a document that is rendered.
func (c *call) sendBody(status int, d *store.Doc, m map[string]any) error {
	c.w.Header().Set("ETag", etag(d))
	if inm := c.r.Header.Get("If-None-Match"); inm != "" && inm == etag(d) && c.r.Method == http.MethodGet {
		return c.empty(http.StatusNotModified)
	}
	return c.sendLike(status, m, d)
}

// sendLike answers with a document in the order in which it was sent.
func (c *call) sendLike(status int, m map[string]any, d *store.Doc) error {
	b, err := ordered.Marshal(m, d.Body)
	if err != nil {
		return err
	}
	return c.sendJSON(status, b)
}

func etag(d *store.Doc) string { return `"` + strconv.FormatInt(int64(d.Rev), 10) + `"` }

// ifMatch holds a request to the revision the client saw.
func (c *call) ifMatch(tx *store.Tx, kind, name, version string) error {
	want, none := c.r.Header.Get("If-Match"), c.r.Header.Get("If-None-Match")
	if want == "" && none == "" {
		return nil
	}
	d, err := tx.Get(c.ws.Key(), kind, name, version)
	if err != nil && berth.CodeOf(err) != berth.NotFound {
		return err
	}
	switch {
	case none == "*" && err == nil:
		return berth.Errorf(berth.Precondition, "%s exists", name)
	case want != "" && err != nil, want != "" && want != "*" && want != etag(d):
		return berth.Errorf(berth.Precondition, "%s was changed by somebody else; read it again", name)
	}
	return nil
}

func systemData(d *store.Doc, stamp func(time.Time) string) map[string]any {
	by := d.CreatedBy
	if by == "" {
		by = "berth"
	}
	return map[string]any{
		"createdAt": stamp(d.Created), "createdBy": by, "createdByType": "User",
		"lastModifiedAt": stamp(d.Updated), "lastModifiedBy": by, "lastModifiedByType": "User",
	}
}

// stamp is a time as the service writes it, and zulu as that part of it does that keeps workspaces
// and connections.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000-07:00") }
func zulu(t time.Time) string  { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// emit records that a resource changed.
func (c *call) emit(tx *store.Tx, typ string, r *resource, name, version string) {
	subject := r.Collection + "/" + name
	if version != "" {
		subject += "/" + r.Child + "/" + version
	}
	tx.Emit(berth.Event{Workspace: c.ws.Key(), Subject: subject, Type: typ, Reason: r.Noun + " written by " + c.who.User})
}
