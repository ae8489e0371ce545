package migrate

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// registered brings over a registered model. Versions keep their numbers; a model that somebody
// registered here is left alone.
func (c *copier) registered(ctx context.Context, m *Model) error {
	if err := cmp.Or(m.Err, checkName(m.Name)); err != nil {
		return c.attempt(err, "model %s", m.Name)
	}
	var have struct {
		Model struct {
			Tags []Pair `json:"tags"`
		} `json:"registered_model"`
	}
	from := c.from.Name()
	err := c.to.Track(ctx, http.MethodGet, "mlflow/registered-models/get?name="+url.QueryEscape(m.Name), nil, &have)
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		in := map[string]any{"name": m.Name, "description": m.Description, "tags": append(theirTags(m.Tags), Pair{berth.TagImportedFrom, from})}
		err = c.post(ctx, "mlflow/registered-models/create", in, nil)
	case err == nil:
		from = c.sourceOf(have.Model.Tags)
		if !slices.Contains(have.Model.Tags, Pair{berth.TagImportedFrom, from}) {
			c.leave("model %s: a model with this name already exists here, and is not from %s", m.Name, from)
			return nil
		}
	}
	if err != nil {
		return c.attempt(err, "model %s", m.Name)
	}
	c.count.Models++
	c.leaveParts(m.Left, "model %s", m.Name)
	for _, v := range m.Versions {
		if err := c.version(ctx, m, v, from); err != nil {
			return err
		}
	}
	for alias, version := range m.Aliases {
		err := c.post(ctx, "mlflow/registered-models/alias", map[string]string{"name": m.Name, "alias": alias, "version": version}, nil)
		if err := c.attempt(err, "alias %s of model %s", alias, m.Name); err != nil {
			return err
		}
	}
	return nil
}

// version brings over a version of a model, which is from a source of some name, under its number;
// one that was before stays as it is.
func (c *copier) version(ctx context.Context, m *Model, v Version, from string) error {
	if v.Err != nil {
		return c.attempt(v.Err, "version %d of model %s", v.Number, m.Name)
	}
	c.leaveParts(v.Left, "version %d of model %s", v.Number, m.Name)
	source, ok := c.source(v)
	if !ok {
		c.leave("version %d of model %s: its files are at %s, outside what is imported", v.Number, m.Name, v.Source)
		return nil
	}
	run, err := c.runID(ctx, v.Run)
	if err != nil {
		return err
	}
	in := map[string]any{
		"name": m.Name, "version": strconv.Itoa(v.Number), "source": source, "run_id": run, "model_id": v.LoggedModel, "description": v.Description,
		"stage": v.Stage, "tags": theirTags(v.Tags), "from": from,
	}
	var out struct {
		Created bool `json:"created"`
	}
	err = c.post(ctx, "berth/import/model-version", in, &out)
	if out.Created {
		c.count.Versions++
	}
	return c.attempt(err, "version %d of model %s", v.Number, m.Name)
}

// source is where the files of a version are in the workspace.
func (c *copier) source(v Version) (string, bool) {
	if v.LoggedModel != "" {
		return modelsScheme + v.LoggedModel, true
	}
	at := v.Source
	if v.ofVersion() { // a model of that name may be another here
		at = v.Storage
	}
	if strings.HasPrefix(at, modelsScheme) {
		return at, !isVersion(at)
	}
	if rest, ok := strings.CutPrefix(at, "runs:/"); ok {
		run, path, _ := strings.Cut(rest, "/")
		return c.uris[run] + "/" + path, c.uris[run] != ""
	}
	if place, ok := c.place(at); ok {
		return place, true
	}
	// The server refuses most others, and paths of the source's own server would mean ours.
	scheme, _, ok := strings.Cut(strings.ToLower(at), "://")
	return at, ok && !slices.Contains([]string{"file", "http", "https", "ftp", "sftp", "mlflow-artifacts", "runs", "models", "azureml"}, scheme)
}

// place is where a file of a run or logged model that was brought over is in the workspace, by its
// place in the source: …/ID/artifacts/PATH, or that of Azure's runs.
func (c *copier) place(at string) (string, bool) {
	parts := strings.Split(at, "/")
	for i, part := range parts {
		if id, ok := strings.CutPrefix(part, "dcid."); ok && i > 0 && parts[i-1] == "ExperimentRun" && c.uris[id] != "" {
			return strings.Join(append([]string{c.uris[id]}, parts[i+1:]...), "/"), true
		}
		if part != "artifacts" || i == 0 || c.uris[parts[i-1]] == "" {
			continue
		}
		id, path := parts[i-1], strings.Join(append([]string{""}, parts[i+1:]...), "/")
		if c.logged[id] && path == "" {
			return modelsScheme + id, true
		}
		return c.uris[id] + path, true
	}
	return "", false
}

const modelsScheme = "models:/"

// isVersion says whether a URI of a model names a version, and not a logged model.
func isVersion(uri string) bool {
	rest, ok := strings.CutPrefix(uri, modelsScheme)
	return ok && strings.ContainsAny(rest, "/@")
}

// ofVersion says whether a version was made of another one.
func (v *Version) ofVersion() bool { return v.LoggedModel == "" && isVersion(v.Source) }
