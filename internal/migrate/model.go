package migrate

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// tagVersion marks a version of a registered model that was brought over, and where from.
const tagVersion = "berth.imported_from"

// model brings over a registered model. Versions keep their numbers; a model that somebody
// registered here is left alone.
func (c *copier) model(ctx context.Context, m *Model) error {
	if len(m.Versions) == 0 {
		c.leave("model %s: it has no versions", m.Name)
		return nil
	}
	name := url.QueryEscape(m.Name)
	var have struct {
		Model struct {
			Tags []Pair `json:"tags"`
		} `json:"registered_model"`
	}
	err := c.to.Track(ctx, http.MethodGet, "mlflow/registered-models/get?name="+name, nil, &have)
	switch {
	case berth.CodeOf(err) == berth.NotFound:
		in := map[string]any{"name": m.Name, "description": m.Description, "tags": append(theirTags(m.Tags), Pair{tagVersion, c.from.Name()})}
		err = c.post(ctx, "mlflow/registered-models/create", in, nil)
	case err == nil && !hasTag(have.Model.Tags, tagVersion):
		c.leave("model %s: a model with this name already exists here", m.Name)
		return nil
	}
	if err != nil {
		return err
	}
	c.count.Models++
	last, err := c.lastVersion(ctx, m.Name)
	if err != nil {
		return err
	}
	for _, v := range m.Versions {
		if v.Number <= last {
			continue // brought over before, or a gap
		}
		if last, err = c.version(ctx, m, v, last); err != nil {
			return err
		}
	}
	for alias, version := range m.Aliases {
		err := c.post(ctx, "mlflow/registered-models/alias", map[string]string{"name": m.Name, "alias": alias, "version": version}, nil)
		if berth.CodeOf(err) == berth.NotFound {
			c.leave("alias %s of model %s: version %s was not imported", alias, m.Name, version)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func hasTag(tags []Pair, key string) bool {
	for _, t := range tags {
		if t.Key == key {
			return true
		}
	}
	return false
}

// lastVersion is the greatest number of a version in the workspace.
func (c *copier) lastVersion(ctx context.Context, name string) (int, error) {
	last := 0
	q := url.Values{"max_results": {"1000"}, "filter": {"name='" + strings.ReplaceAll(name, "'", "''") + "'"}}
	for {
		var out struct {
			Versions []struct {
				Version string `json:"version"`
			} `json:"model_versions"`
			Next string `json:"next_page_token"`
		}
		if err := c.to.Track(ctx, http.MethodGet, "mlflow/model-versions/search?"+q.Encode(), nil, &out); err != nil {
			return 0, err
		}
		for _, v := range out.Versions {
			n, err := strconv.Atoi(v.Version)
			if err != nil {
				return 0, err
			}
			last = max(last, n)
		}
		if q.Set("page_token", out.Next); out.Next == "" {
			return last, nil
		}
	}
}

// version brings over a version and says which number was given out last. Numbers that the source
// has no version of are given out and taken back.
func (c *copier) version(ctx context.Context, m *Model, v Version, last int) (int, error) {
	source, ok := c.source(v)
	if !ok {
		c.leave("version %d of model %s: its files are at %s, outside what is imported", v.Number, m.Name, v.Source)
		return last, nil
	}
	in := map[string]any{
		"name": m.Name, "source": source, "run_id": v.Run, "model_id": v.LoggedModel, "description": v.Description,
		"tags": append(theirTags(v.Tags), Pair{tagVersion, c.from.Name()}),
	}
	for {
		var made struct {
			Version struct {
				Number string `json:"version"`
			} `json:"model_version"`
		}
		if err := c.post(ctx, "mlflow/model-versions/create", in, &made); err != nil {
			return last, err
		}
		n, err := strconv.Atoi(made.Version.Number)
		if err != nil {
			return last, err
		}
		if last = n; n == v.Number {
			break
		}
		if err := c.to.Track(ctx, http.MethodDelete, "mlflow/model-versions/delete", map[string]string{"name": m.Name, "version": made.Version.Number}, nil); err != nil {
			return last, err
		}
		if n > v.Number {
			c.leave("version %d of model %s: this version number is already used here", v.Number, m.Name)
			return last, nil
		}
	}
	c.count.Versions++
	if v.Stage == "" || v.Stage == "None" {
		return last, nil
	}
	return last, c.post(ctx, "mlflow/model-versions/transition-stage",
		map[string]any{"name": m.Name, "version": strconv.Itoa(v.Number), "stage": v.Stage, "archive_existing_versions": false}, nil)
}

// source is where the files of a version are in the workspace.
func (c *copier) source(v Version) (string, bool) {
	if v.LoggedModel != "" {
		return "models:/" + v.LoggedModel, true
	}
	if strings.HasPrefix(v.Source, "models:/m-") {
		return v.Source, true
	}
	if _, path, ok := strings.Cut(v.Source, "/"+v.Run+"/artifacts"); ok && v.Run != "" && c.uris[v.Run] != "" {
		return c.uris[v.Run] + path, true
	}
	scheme, _, ok := strings.Cut(v.Source, "://")
	return v.Source, ok && scheme != "file"
}
