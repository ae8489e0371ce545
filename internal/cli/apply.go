package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/driver/all"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/spec"
)

// apply uploads what a file needs and creates its resources, dependencies first. It returns the
// last, the thing itself.
func (s *session) apply(ctx context.Context, c *client.Client, r *spec.Result) (client.Document, error) {
	d, _, err := s.applyRev(ctx, c, r)
	return d, err
}

// applyRev is apply with the revision a job was created at.
func (s *session) applyRev(ctx context.Context, c *client.Client, r *spec.Result) (d client.Document, rev berth.Rev, err error) {
	for _, w := range r.Warnings {
		s.warn("%v", w)
	}
	for i := range r.Resources {
		res := &r.Resources[i]
		body, err := s.fill(ctx, c, res)
		if err != nil {
			return client.Document{}, 0, err
		}
		if res.Type == "jobs" {
			if res.Name == "" {
				res.Name = newName()
			}
			d, rev, err = c.Submit(ctx, res.Name, body)
			if s.format.az && berth.CodeOf(err) == berth.Conflict && sameWork(ctx, c, res.Name, body) {
				d, err = c.Put(ctx, body, "jobs", res.Name) // to az it is an update of what may change
			}
			if err != nil {
				return client.Document{}, 0, err
			}
			continue
		}
		if d, err = s.put(ctx, c, res, body); err != nil {
			return client.Document{}, 0, err
		}
	}
	return d, rev, nil
}

// sameWork reports whether the job of this name does what a document asks for, so that only texts
// and tags can differ.
func sameWork(ctx context.Context, c *client.Client, name string, body json.RawMessage) bool {
	there, err := c.Get(ctx, "jobs", name)
	if err != nil {
		return false
	}
	var asked client.Document
	if err := json.Unmarshal(body, &asked); err != nil {
		return false
	}
	for _, k := range []string{"jobType", "command", "codeId", "environmentId", "computeId", "jobs"} {
		if !reflect.DeepEqual(asked.Properties()[k], there.Properties()[k]) {
			return false
		}
	}
	return true
}

// fill uploads a resource's files and puts their addresses into its document, and versions in the
// place of labels.
func (s *session) fill(ctx context.Context, c *client.Client, res *spec.Resource) (json.RawMessage, error) {
	uris := map[string]string{}
	for _, u := range res.Uploads {
		var err error
		if u.Kind == "code" {
			uris[u.Placeholder], err = s.codeAsset(ctx, c, u, false, func(f *spec.Folder) error {
				s.leaveSecrets(f, "a line !NAME in .amlignore uploads")
				return nil
			})
		} else {
			uris[u.Placeholder], err = s.uploadData(ctx, c, u)
		}
		if st, err := os.Stat(u.Path); err == nil && st.IsDir() && res.Type == "jobs" && u.Kind != "code" {
			uris[u.Placeholder] = strings.TrimSuffix(uris[u.Placeholder], "/") + "/" // a folder's address ends with a slash
		}
		if res.Type == "models" { // which clients name with their workspace
			uris[u.Placeholder] = strings.Replace(uris[u.Placeholder], "azureml://datastores/", fmt.Sprintf("azureml://subscriptions/%s/resourcegroups/%s/workspaces/%s/datastores/",
				c.Workspace.Subscription, c.Workspace.Group, c.Workspace.Name), 1)
		}
		if err != nil {
			return nil, err
		}
	}
	body, err := res.Fill(uris)
	if err != nil {
		return nil, err
	}
	return resolveLabels(ctx, c, body)
}

// versioned are the collections whose resources have versions.
var versioned = map[string]bool{"environments": true, "data": true, "models": true, "components": true, "codes": true, "featuresets": true, "featurestoreEntities": true}

// put creates a resource that is not a job; an asset without a version gets the next one, an
// environment only if it is not the latest.
func (s *session) put(ctx context.Context, c *client.Client, res *spec.Resource, body json.RawMessage) (client.Document, error) {
	switch {
	case res.Type == "workspaces":
		return s.putWorkspace(ctx, c, res.Name, body)
	case res.Parent != "":
		collection, child, _ := strings.Cut(res.Type, "/")
		return c.Put(ctx, body, collection, res.Parent, child, res.Name)
	case !versioned[res.Type]:
		d, err := c.Put(ctx, body, res.Type, res.Name)
		if err == nil && res.Type == "computes" {
			s.warnOf(d)
		}
		return d, err
	}
	if res.Version != "" {
		return c.Put(ctx, body, res.Type, res.Name, "versions", res.Version)
	}
	latest, next, err := versionsOf(ctx, c, res.Type, res.Name)
	if err != nil {
		return client.Document{}, err
	}
	if res.Version = latest; res.Type == "environments" && latest != "" {
		if d, err := c.Put(ctx, body, res.Type, res.Name, "versions", latest); berth.CodeOf(err) != berth.Conflict {
			return d, err
		}
	}
	res.Version = next
	return c.Put(ctx, body, res.Type, res.Name, "versions", next)
}

// warnOf shows what the server warns of in its answer about a compute.
func (s *session) warnOf(d client.Document) {
	own, _ := d.Properties()["berth"].(map[string]any)
	list, _ := own["warnings"].([]any)
	for _, w := range list {
		s.warn("%v", w)
	}
}

// versionsOf are the latest version of an asset, "" if there is none, and the one to come.
func versionsOf(ctx context.Context, c *client.Client, collection, name string) (latest, next string, err error) {
	d, err := c.Get(ctx, collection, name)
	if berth.CodeOf(err) == berth.NotFound {
		return "", "1", nil
	}
	if err != nil {
		return "", "", err
	}
	latest, _ = d.Properties()["latestVersion"].(string)
	if next, _ = d.Properties()["nextVersion"].(string); next == "" {
		next = "1"
	}
	return latest, next, nil
}

func (s *session) putWorkspace(ctx context.Context, c *client.Client, name string, body json.RawMessage) (client.Document, error) {
	ws := c.Workspace
	ws.Name = name
	return c.In(ws).Put(ctx, body)
}

// load reads a YAML file for a noun.
func (s *session) load(c *client.Client, kind, file string, set []string, name, version string) (*spec.Result, error) {
	dir, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	return spec.Load(file, withTypes(spec.Options{
		Kind: kind, Set: set, Workspace: c.Workspace, Name: name, Version: version, Experiment: filepath.Base(dir), Links: followLinks(),
	}))
}

// withTypes adds the types of jobs and computes that a server of this build knows.
func withTypes(o spec.Options) spec.Options {
	o.JobTypes, o.ComputeTypes = kind.Words(), all.Types()
	return o
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
