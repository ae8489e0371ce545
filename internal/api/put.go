package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/store"
)

// writeCall is a call that creates or changes a document.
type writeCall struct{ *call }

// put creates or updates one document.
func (s *documentService) put(c *call, r *resource, name, version string) error {
	if err := berth.CheckName(r.Noun, name); err != nil {
		return err
	}
	if err := r.checkVersion(version); err != nil {
		return err
	}
	body, err := c.body()
	if err != nil {
		return err
	}
	props, err := object(body, "properties")
	if err != nil {
		return err
	}
	if err := checkForm(r, body); err != nil {
		return err
	}
	w := writing{r: r, name: name, version: version, body: body, secrets: takeSecrets(r, props)}
	var d *store.Doc
	created := false
	err = s.db.Update(c.ctx(), func(tx *store.Tx) (err error) {
		d, created, err = writeCall{c}.write(tx, w)
		return err
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		if r.Created != 0 {
			status = r.Created
		}
	}
	switch {
	case r.LRO:
		c.operation("put", c.docID(r, d))
	case status == http.StatusCreated:
		c.w.Header().Set("Location", s.BaseURL+c.r.URL.RequestURI())
	}
	return c.sendDoc(status, r, d)
}

// checkVersion refuses what cannot be a version, or the name of something on a second level.
func (r *resource) checkVersion(version string) error {
	switch {
	case version == "":
		return nil
	case r.ChildNoun != "":
		return berth.CheckName(r.ChildNoun, version)
	}
	return berth.CheckVersion(r.Noun, version)
}

// writing is a document that is to be kept.
type writing struct {
	r             *resource
	name, version string
	body          map[string]any
	secrets       map[string]any // that were taken out of it
}

// write keeps a document, over one that is there as far as that may change.
func (c writeCall) write(tx *store.Tx, w writing) (d *store.Doc, created bool, err error) {
	r := w.r
	if err := c.ifMatch(tx, r.kind(w.version), w.name, w.version); err != nil {
		return nil, false, err
	}
	body, props, err := cloneBody(w.body)
	if err != nil {
		return nil, false, err
	}
	if err := c.resolveOutputURI(tx, r, props); err != nil {
		return nil, false, err
	}
	v, err := c.draft(tx, w, body, props)
	if err != nil {
		return nil, false, err
	}
	d, created, body, props = v.d, v.created, v.body, v.props
	had := d.Own
	if r.Check != nil && !(r.Child == "versions" && w.version == "") {
		if err := r.Check(c.call, tx, w.name, w.version, props); err != nil {
			return nil, false, err
		}
	}
	if !created && r.MakerOnly {
		if err := c.madeIt(r, d, "change"); err != nil {
			return nil, false, err
		}
	}
	if err := c.mark(r, d, props, created); err != nil {
		return nil, false, err
	}
	// What is there stays where it is, where only a part of it may change.
	if err := c.setBody(d, body, c.r.Method == http.MethodPatch || d.Version != "" && r.Mutable != nil); err != nil {
		return nil, false, err
	}
	if err := checkSize(d.Kind, d.Body); err != nil {
		return nil, false, err
	}
	if len(r.Secrets) > 0 {
		if d.Own, err = c.s.docs.reseal(c.call, r, d, v.before, props, w.secrets); err != nil {
			return nil, false, err
		}
	}
	if r.Mark != nil {
		if err := r.Mark(c.call, d, had, created); err != nil {
			return nil, false, err
		}
	}
	c.emit(tx, berth.EventResourcePut, r, w.name, w.version)
	if !created {
		return d, false, tx.Save(d)
	}
	return d, true, c.insert(tx, r, d, props)
}

// draft is a document with what it will hold.
type draft struct {
	d           *store.Doc
	created     bool // it is new
	body, props map[string]any
	before      map[string]any // the properties until now, as far as secrets depend on them
}

// draft begins a new document, or merges what a client sent into the one there is.
func (c writeCall) draft(tx *store.Tx, w writing, body, props map[string]any) (v draft, err error) {
	v = draft{body: body, props: props, before: map[string]any{}}
	v.d, err = tx.Get(c.ws.Key(), w.r.kind(w.version), w.name, w.version)
	v.created = berth.CodeOf(err) == berth.NotFound
	patch := c.r.Method == http.MethodPatch
	switch {
	case v.created && patch:
		return v, c.missing(err, w.r, w.name, w.version)
	case v.created:
		v.d = &store.Doc{Workspace: c.ws.Key(), Kind: w.r.kind(w.version), Name: w.name, Version: w.version, CreatedBy: c.who.User}
		return v, nil
	case err != nil:
		return v, err
	}
	if len(w.r.Secrets) > 0 {
		if _, v.before, err = bodyOf(v.d); err != nil {
			return v, err
		}
	}
	v.body, v.props, err = c.merge(tx, w.r, v.d, body, props, patch)
	return v, err
}

// setBody makes what a client sent the body of a document. keep says that what is there stays in
// its order.
func (c writeCall) setBody(d *store.Doc, body map[string]any, keep bool) (err error) {
	stripReadOnly(body)
	like := [][]byte{c.received, d.Body}
	if keep {
		slices.Reverse(like)
	}
	if err := checkLimits(body); err != nil { // of what was there and what came, together
		return err
	}
	d.Body, err = ordered.Marshal(body, like...)
	return err
}

// mark sets what is kept beside a document's body.
func (c writeCall) mark(r *resource, d *store.Doc, props map[string]any, created bool) error {
	vouched, err := c.vouch(r, props)
	if err != nil {
		return err
	}
	if vouched != nil && len(r.Secrets) == 0 {
		d.Own = vouched
	}
	d.Archived, _ = props["isArchived"].(bool)
	if h, ok := dig(props, "properties.hash_sha256").(string); ok && created && r.ByHash {
		d.Hash = h // as its owner says; it is found by nobody else
	}
	return nil
}

// insert inserts a new document, with what belongs to it.
func (c writeCall) insert(tx *store.Tx, r *resource, d *store.Doc, props map[string]any) error {
	if r.Inert != "" {
		tx.Emit(berth.Event{Workspace: d.Workspace, Subject: r.Collection + "/" + d.Name, Type: berth.EventWarning, Reason: r.Inert})
	}
	if r.KeepsName && d.Version == "" || r.Child == "versions" && d.Version != "" {
		if err := c.mayMake(tx, r, d); err != nil {
			return err
		}
	}
	if d.Version == "" || r.Child != "versions" {
		return c.insertBelow(tx, r, d)
	}
	if err := c.holdFiles(tx, r, d, props); err != nil {
		return err
	}
	if err := tx.Insert(d); err != nil {
		return err
	}
	return asset.UpdateContainer(tx, c.ws.Key(), r.Collection, d.Name, d.Version, c.who.User, props)
}

// insertBelow inserts a document; one of a second level only below one of the first.
func (c writeCall) insertBelow(tx *store.Tx, r *resource, d *store.Doc) error {
	if d.Version != "" {
		if _, err := tx.Get(d.Workspace, r.Collection, d.Name, ""); err != nil {
			return c.missing(err, r, d.Name, "")
		}
	}
	return tx.Insert(d)
}

// resolveOutputURI writes where data is into a document that names the output of a job, as Azure
// does: the asset outlives the job, and clients download from datastores only.
func (c writeCall) resolveOutputURI(tx *store.Tx, r *resource, props map[string]any) error {
	for _, f := range r.Immutable {
		uri, ok := props[f].(string)
		if !ok {
			continue
		}
		place, job, err := locate.ResolveOutput(tx, c.ws, uri)
		if err != nil {
			return berth.Errorf(berth.CodeOf(err), "properties.%s: %w", f, err)
		}
		props[f] = place
		if job != "" && r.FromJob != "" && props[r.FromJob] == nil {
			props[r.FromJob] = job
		}
	}
	return nil
}

// merge is a PUT or PATCH on something that exists. Asset versions are immutable but for a few
// fields.
func (c writeCall) merge(tx *store.Tx, r *resource, d *store.Doc, body, props map[string]any, patch bool) (map[string]any, map[string]any, error) {
	old, oldProps, err := bodyOf(d)
	if err != nil {
		return nil, nil, err
	}
	c.sealOlder(d, old)
	if archive, ok := props["isArchived"].(bool); ok && archive != d.Archived && r.Child == "versions" {
		if err := c.madeIt(r, d, "archive"); err != nil { // what the newest version is depends on it
			return nil, nil, err
		}
	}
	if d.Version != "" && r.Mutable != nil {
		return old, oldProps, c.mergeVersion(tx, r, d, oldProps, props)
	}
	if d.Version != "" && r.Child == "versions" {
		if err := c.madeIt(r, d, "change"); err != nil {
			return nil, nil, err
		}
	}
	for _, k := range []string{"location", "tags", "identity", "sku", "kind"} {
		if _, ok := body[k]; !ok {
			if v, ok := old[k]; ok {
				body[k] = v
			}
		}
	}
	if patch {
		overlay(oldProps, props)
		props = oldProps
		body["properties"] = props
	}
	return body, props, nil
}

// mergeVersion writes what may change of an asset version into old, its properties, and refuses the
// rest.
func (c writeCall) mergeVersion(tx *store.Tx, r *resource, d *store.Doc, old, props map[string]any) error {
	for _, f := range r.Immutable {
		v, ok := props[f]
		if !ok || equalURI(c.ws, v, old[f]) || c.sameOpened(d, v, old[f]) {
			continue
		}
		if same, err := c.sameFiles(tx, text(old, f), text(props, f), old, props); err != nil {
			return err
		} else if !same {
			return berth.Errorf(berth.Conflict, "%s %s:%s exists with another %s; versions do not change; create a new one", r.Noun, d.Name, d.Version, f)
		}
	}
	if r.CheckUnchanged != nil {
		if err := r.CheckUnchanged(c.call, tx, d, old, props); err != nil {
			return err
		}
	}
	for _, k := range r.Mutable {
		if v, ok := props[k]; ok {
			old[k] = v
		}
	}
	return nil
}

// sameFiles says whether a version without a name, which clients call by a hash of its files, was
// sent again after its files were uploaded to another address. It keeps the address it has.
func (c writeCall) sameFiles(tx *store.Tx, uri, asked string, old, props map[string]any) (bool, error) {
	if old["isAnonymous"] != true || props["isAnonymous"] != true {
		return false, nil
	}
	a, err := c.contentOf(tx, uri)
	if err != nil {
		return false, err
	}
	b, err := c.contentOf(tx, asked)
	return a == b, err
}

// equalURI compares two URIs as the service does: a trailing slash makes no difference, nor does a
// workspace that is not named.
func equalURI(ws berth.Workspace, a, b any) bool {
	x, ok1 := a.(string)
	y, ok2 := b.(string)
	if !ok1 || !ok2 {
		return a == b
	}
	x, y = locate.FullURI(ws, x, dataGroups), locate.FullURI(ws, y, dataGroups)
	return strings.EqualFold(strings.TrimSuffix(x, "/"), strings.TrimSuffix(y, "/"))
}

// overlay writes b over a, member by member.
func overlay(a, b map[string]any) {
	for k, v := range b {
		av, ok1 := a[k].(map[string]any)
		bv, ok2 := v.(map[string]any)
		if ok1 && ok2 {
			overlay(av, bv)
			continue
		}
		a[k] = v
	}
}

// stripReadOnly drops what only we say, so that a document a client read and sent back does not
// carry stale answers.
func stripReadOnly(body map[string]any) {
	for _, k := range []string{"id", "name", "type", "systemData"} {
		delete(body, k)
	}
	if p, ok := body["properties"].(map[string]any); ok {
		delete(p, "provisioningState")
		delete(p, "berth")
	}
}
