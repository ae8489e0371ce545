package track

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/store"
)

// Registered models and the models of the workspace are one thing. A version that MLflow registers
// is written as a version of a model too, in the same transaction; a version of a model that
// somebody else makes becomes a registered one as soon as the registry is asked (see catchUp). Left
// out are names that a model of the workspace cannot have, and versions that are not numbers.

const (
	kindModels        = "models"
	kindModelVersions = "models/versions"
	artifactDatastore = "azureml://datastores/workspaceartifactstore/paths/"
	// assetArtifacts is below which the artifact proxy has the files of models that MLflow did not
	// register.
	assetArtifacts = "azureml-models"
)

// modelProps is what is common to a version of a model and a registered one.
type modelProps struct {
	ModelURI, JobName, Description string
	Tags                           map[string]string
}

// bodyOf is the document of a version of a model, and its properties.
func bodyOf(d *store.Doc) (body, props map[string]any, err error) {
	dec := json.NewDecoder(bytes.NewReader(d.Body))
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil {
		return nil, nil, berth.Errorf(berth.Internal, "model %s:%s cannot be read: %w", d.Name, d.Version, err)
	}
	props, ok := body["properties"].(map[string]any)
	if !ok {
		return nil, nil, berth.Errorf(berth.Internal, "model %s:%s has no properties", d.Name, d.Version)
	}
	return body, props, nil
}

// readModel is what a document says of a version of a model. Tags that are not texts are not
// MLflow's.
func readModel(d *store.Doc) (modelProps, error) {
	_, props, err := bodyOf(d)
	if err != nil {
		return modelProps{}, err
	}
	out := modelProps{ModelURI: locate.ContentURI(kindModels, props)}
	out.JobName, _ = props["jobName"].(string)
	out.Description, _ = props["description"].(string)
	tags, _ := props["tags"].(map[string]any)
	for k, x := range tags {
		if s, ok := x.(string); ok {
			setTag(&out.Tags, pair{k, s})
		}
	}
	return out, nil
}

// shareable says whether a registered model can be one of the workspace's.
func (m *registered) shareable() bool {
	return berth.CheckName("model", m.Name) == nil && m.Tags[tagPrompt] != "true"
}

// share writes a registered version as a version of a model, or what changed of it.
func (c *change) share(m *registered, v *version) error {
	if !m.shareable() {
		return c.hold(m, v)
	}
	d, err := c.tx.Get(c.w.Key, kindModelVersions, m.Name, itoa(v.Number))
	switch {
	case err == nil && v.Asset:
		return c.reshare(d, v)
	case err == nil: // of a model whose name differs in case
		return c.hold(m, v)
	case berth.CodeOf(err) != berth.NotFound:
		return err
	case v.Asset: // it was deleted, and MLflow's goes with it
		return nil
	}
	if maker, was, err := asset.Deleted(c.tx, c.w.Key, kindModels, m.Name, itoa(v.Number)); err != nil {
		return err
	} else if was && maker != v.User {
		return refuse(denied, "Version %d of model %s was deleted; only %s, who created it, may create it again", v.Number, m.Name, maker)
	}
	if err := c.hold(m, v); err != nil {
		return err
	}
	switch other, err := c.tx.Get(c.w.Key, kindModels, m.Name, ""); {
	case err == nil && other.Name != m.Name: // only in case, which the workspace's models do not tell apart
		return nil
	case err != nil && berth.CodeOf(err) != berth.NotFound:
		return err
	}
	props := map[string]any{"modelUri": c.w.assetURI(v.URI), "modelType": "mlflow_model", "description": v.Description, "tags": tagsOf(v), "isArchived": false}
	if v.RunID != "" {
		if _, err := c.tx.Get(c.w.Key, kindJobs, v.RunID, ""); err == nil {
			props["jobName"] = v.RunID
		} else if berth.CodeOf(err) != berth.NotFound {
			return err
		}
	}
	if _, err := asset.Create(c.tx, asset.Version{
		Workspace: c.w.Key, Collection: kindModels, Name: m.Name, Version: itoa(v.Number), User: v.User, Properties: props,
	}); err != nil {
		return err
	}
	v.Asset = true
	c.emitModel(berth.EventResourcePut, m.Name, v)
	return nil
}

// hold keeps the files of a version as they are, whether or not the workspace's models can have it.
func (c *change) hold(m *registered, v *version) error {
	at, ok := c.w.heldAt(v)
	if !ok {
		return nil
	}
	title := asset.Title("model", m.Name, itoa(v.Number))
	if over, err := c.isOver(at); err != nil {
		return err
	} else if over {
		return blob.HoldAll(c.tx, at.container, at.name, title)
	}
	return blob.Hold(c.tx, at.container, at.name, title, v.User)
}

// isOver says whether what a file is of has come to its end, so that nobody has a reason to write
// to it.
func (c *change) isOver(f file) (bool, error) {
	if ended, err := locate.OfEndedJob(c.tx, c.w.Key, f.name); ended || err != nil {
		return ended, err
	}
	switch {
	case f.model != nil:
		return f.model.Status != loggedPending, nil
	case f.run != nil && !f.run.isJob():
		return f.run.Status != running && f.run.Status != "SCHEDULED", nil
	}
	return false, nil
}

// reshare brings the description and the tags of a version of a model up to date.
func (c *change) reshare(d *store.Doc, v *version) error {
	old, err := readModel(d)
	if err != nil || old.Description == v.Description && maps.Equal(old.Tags, v.Tags) {
		return err
	}
	body, props, err := bodyOf(d)
	if err != nil {
		return err
	}
	props["description"], props["tags"] = v.Description, tagsOf(v)
	if d.Body, err = ordered.Marshal(body, d.Body); err != nil {
		return err
	}
	c.emitModel(berth.EventResourcePut, d.Name, v)
	return c.tx.Save(d)
}

func tagsOf(v *version) map[string]string {
	if v.Tags == nil {
		return map[string]string{}
	}
	return v.Tags
}

// unshare deletes the version of a model that a registered one is.
func (c *change) unshare(m *registered, v *version) error {
	if at, ok := c.w.heldAt(v); ok {
		if err := blob.Release(c.tx, at.container, at.name, asset.Title("model", m.Name, itoa(v.Number))); err != nil {
			return err
		}
	}
	if !v.Asset {
		return nil
	}
	d, err := c.tx.Get(c.w.Key, kindModelVersions, m.Name, itoa(v.Number))
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	c.emitModel(berth.EventResourceDel, m.Name, v)
	return asset.Delete(c.tx, kindModels, d)
}

// filesOf is where the server has the files of a version.
func (w *workspace) filesOf(v *version) (file, bool) {
	switch {
	case v.Container != "":
		return file{container: v.Container, name: v.Folder}, true
	case v.HeldIn != "":
		return w.fileIn(v.HeldIn, v.Held), true
	}
	p, ours := proxied(w.inRun(v.URI))
	return w.fileAt(p), ours
}

// heldAt is the place whose files stay as they are for as long as a version is registered. The root
// of a run is none: its log goes on.
func (w *workspace) heldAt(v *version) (file, bool) {
	f, ours := w.filesOf(v)
	if !ours || v.Container == "" && v.HeldIn == "" && !strings.Contains(f.path, "/") || f.run != nil && f.name == locate.ArtifactPath(f.run.ID) {
		return file{}, false
	}
	return f, true
}

func (c *change) emitModel(kind, name string, v *version) {
	c.tx.Emit(berth.Event{
		Workspace: c.w.Key, Subject: kindModels + "/" + name + "/versions/" + itoa(v.Number), Type: kind, Reason: "model written through MLflow by " + v.User,
	})
}

// runsScheme is how the URI of a run's file begins that names the run: runs:/ID/PATH.
const runsScheme = "runs:/"

// inRunOf takes runs:/ID/PATH apart; ok is false for what does not name one run and a path in it.
func inRunOf(uri string) (id, p string, ok bool) {
	rest, ok := strings.CutPrefix(uri, runsScheme)
	if !ok {
		return "", "", false
	}
	id, p, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
	p = strings.TrimSuffix(p, "/")
	safe, err := safePath(p)
	if err != nil || safe != p || strings.Trim(id, ".") == "" || strings.ContainsAny(id, "%\\\x00") {
		return "", "", false
	}
	return id, p, true
}

// inRun is a URI of a run's file as one of the artifact proxy; others are themselves.
func (w *workspace) inRun(uri string) string {
	if id, p, ok := inRunOf(uri); ok {
		if r := w.run(id); r != nil {
			return r.URI + "/" + p
		}
	}
	return uri
}

// assetURI is where the files of a version are, as models say it.
func (w *workspace) assetURI(uri string) string {
	p, ours := proxied(w.inRun(uri))
	if !ours {
		return uri
	}
	return artifactDatastore + w.fileAt(p).name
}

// A modelDoc is a version of a model that may become a registered one.
type modelDoc struct {
	*store.Doc
	modelProps
	number int
}

// showModels makes registered versions of versions of models, and brings those that are up to date.
// names are the models that docs has all versions of; what is registered of them and has no
// document any more is removed.
func (w *workspace) showModels(ctx context.Context, names []string, docs []*store.Doc) error {
	all := map[string][]modelDoc{}
	for _, d := range docs {
		p, err := readModel(d)
		if err != nil {
			w.s.Log.Error("model not shown in the registry", "err", err)
			continue
		}
		if n, err := strconv.Atoi(d.Version); err == nil && n > 0 && itoa(n) == d.Version {
			all[d.Name] = append(all[d.Name], modelDoc{d, p, n})
		}
	}
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !w.stale(name, all[name]) {
			continue
		}
		err := w.update(ctx, func(x *change) error {
			x.state = true // it is a model already, however large
			return x.adoptModel(name, all[name])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stale says whether the registry differs from the documents of a model.
func (w *workspace) stale(name string, docs []modelDoc) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	m := w.index.models[name]
	if m == nil {
		return len(docs) > 0
	}
	have := map[int]bool{}
	for _, d := range docs {
		have[d.number] = true
		if v := w.index.version(m.ID, d.number); v == nil || v.Asset && !d.same(v) {
			return true
		}
	}
	return slices.ContainsFunc(w.index.versions[m.ID], func(v *version) bool { return v.Asset && !have[v.Number] })
}

func (d modelDoc) same(v *version) bool {
	return d.Description == v.Description && maps.Equal(d.Tags, v.Tags)
}

// adoptModel brings the registered versions of one model up to date with its documents.
func (c *change) adoptModel(name string, docs []modelDoc) error {
	m, err := findNamed[registered](c, kindRegistered, name)
	if err != nil {
		return err
	}
	if m == nil {
		if len(docs) == 0 {
			return nil
		}
		m = &registered{ID: newID(), Registered: locate.Registered{Name: name}, User: docs[0].CreatedBy, Created: docs[0].Created.UnixMilli()}
	}
	have := map[int]bool{}
	for _, d := range docs {
		have[d.number] = true
		v, err := find[version](c, kindVersions, m.ID, itoa(d.number))
		if err != nil {
			return err
		}
		switch {
		case v == nil:
			v = c.newFromModel(m, d)
		case !v.Asset || d.same(v):
			continue
		default:
			v.Description, v.Tags, v.Updated = d.Description, d.Tags, d.Updated.UnixMilli()
		}
		m.Last, m.Updated = max(m.Last, d.number), max(m.Updated, v.Updated)
		if err := c.save(v); err != nil {
			return err
		}
	}
	err = c.eachVersion(m, func(v *version) error {
		if !v.Asset || have[v.Number] {
			return nil
		}
		if _, err := c.tx.Get(c.w.Key, kindModelVersions, name, itoa(v.Number)); berth.CodeOf(err) != berth.NotFound {
			return err // made meanwhile
		}
		return c.dropVersion(m, v)
	})
	if err != nil {
		return err
	}
	return c.save(m)
}

// newFromModel is the registered version that a version of a model makes.
func (c *change) newFromModel(m *registered, d modelDoc) *version {
	v := &version{
		Model: m.ID, Number: d.number, Source: d.ModelURI, URI: d.ModelURI, RunID: d.JobName, Description: d.Description, Stage: "None",
		Status: "READY", User: d.CreatedBy, Created: d.Created.UnixMilli(), Updated: d.Updated.UnixMilli(), Tags: d.Tags, Asset: true,
	}
	place, err := c.w.s.Locator.Content(c.tx, c.w.Of, d.Doc, d.ModelURI)
	if err != nil || place.Container == "" || place.Container != c.w.Blobs && place.Container != c.w.Artifacts {
		return v // the files are elsewhere, and the client's business
	}
	v.Container, v.Folder = place.Container, strings.Trim(place.Name, "/")
	v.URI = "mlflow-artifacts:/" + assetArtifacts + "/" + m.Name + "/" + itoa(v.Number)
	return v
}

// assetVersion is a version that MLflow did not register and whose files the server has.
func (w *workspace) assetVersion(name, number string) *version {
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	m := w.index.models[name]
	if m == nil {
		return nil
	}
	if v := w.index.version(m.ID, n); v != nil && v.Container != "" {
		return v
	}
	return nil
}
