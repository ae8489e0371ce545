package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/store"
)

// curatedVersion is the latest version of environments that are always there.
const curatedVersion = "1"

// curatedEnvironment is the document of an environment that is always there: it answers for every
// version somebody names, and for the container. The first that somebody makes of that name takes
// its place. It is as old as the workspace.
func curatedEnvironment(c *call, name, version string) (*store.Doc, bool, error) {
	env, ok := c.s.Curated(name)
	if !ok {
		return nil, false, nil
	}
	d := &store.Doc{Workspace: c.ws.Key(), Kind: "environments/versions", Name: name, Version: version}
	props := map[string]any{
		"image": "mcr.microsoft.com/azureml/curated/" + name + ":" + version, "condaFile": env.Conda, "osType": "Linux",
		"environmentType": "Curated", "description": "stands in for the curated environment of that name",
	}
	var err error
	if version == "" {
		d.Kind, props = "environments", map[string]any{}
		if d.Own, err = json.Marshal(asset.Container{Latest: curatedVersion, Next: curatedVersion}); err != nil {
			return nil, false, err
		}
	}
	if d.Body, err = json.Marshal(map[string]any{"properties": props}); err != nil {
		return nil, false, err
	}
	err = c.s.DB.View(c.ctx(), func(tx *store.Tx) error {
		ws, err := tx.Get("", kindWorkspace, c.ws.Key(), "")
		if err == nil {
			d.Created, d.Updated = ws.Created, ws.Created
		}
		return err
	})
	return d, err == nil, err
}

func checkEnvironment(c *call, tx *store.Tx, name, version string, p map[string]any) error {
	_, curated := c.s.Curated(name)
	if (curated || strings.HasPrefix(strings.ToLower(name), "azureml-")) && c.who.Role != auth.Admin {
		// Others name it and mean the one that is always there. What an administrator made may be
		// edited as ever.
		if _, err := tx.Get(c.ws.Key(), "environments/versions", name, version); err != nil {
			return berth.Errorf(berth.Denied, "%s is the name of a curated environment, which only an administrator may replace: choose another name", name)
		}
	}
	if strings.HasPrefix(strings.ToLower(name), serve.EnvironmentPrefix) {
		return berth.Errorf(berth.Denied, "names that begin with %s are those of environments that the server creates for models: choose another name", serve.EnvironmentPrefix)
	}
	if p["image"] == nil && p["build"] == nil && p["condaFile"] == nil {
		return berth.Errorf(berth.Invalid, "an environment needs properties.image, properties.build or properties.condaFile")
	}
	delete(asMap(p["properties"]), labelsProperty) // of a document that was read and sent back; it is ours to say
	return nil
}

// shapeEnvironment writes what the service says of an environment: where it comes from, that no
// newer base image changes it, and its labels.
func shapeEnvironment(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	orNull(p, "autoDeleteSetting", "intellectualProperty")
	setDefault(p, "environmentType", "UserCreated")
	setDefault(p, "osType", "Linux")
	setDefault(p, "autoRebuild", "Disabled")
	setDefault(p, "stage", stageOf(p))
	if text(p, "environmentType") == "UserCreated" {
		label := ""
		if p["isAnonymous"] != true && c.newest(d) {
			label = "latest"
		}
		asMap(p["properties"])[labelsProperty] = label
	}
	if conda, ok := jsonOf(text(p, "condaFile")); ok {
		p["condaFile"] = conda
	}
}

// sameEnvironment refuses another definition for a version that exists, as Azure does: clients that
// were given no version try the latest one first, and make the next when they are refused. One
// without a name is called by a hash of what it is.
func sameEnvironment(c *call, tx *store.Tx, d *store.Doc, old, asked map[string]any) error {
	// One without a name is called by a hash that its first user's client made; whoever comes after
	// gets what they asked for or nothing.
	nameless := asked["isAnonymous"] == true || old["isAnonymous"] == true
	if c.r.Method == http.MethodPatch || nameless && d.CreatedBy == c.who.User {
		return nil
	}
	a, err := c.definitionOf(tx, old)
	if err != nil {
		return err
	}
	b, err := c.definitionOf(tx, asked)
	if err != nil {
		return err
	}
	for _, k := range []string{"image", "condaFile", "build", "inferenceConfig", "osType"} {
		if !reflect.DeepEqual(a[k], b[k]) {
			return &berth.Error{Code: berth.Conflict, Wire: usersError, Msg: fmt.Sprintf(
				"environment %s with version %s is already registered with another %s and cannot be changed; make a new version", d.Name, d.Version, k)}
		}
	}
	return nil
}

// definitionOf is what an environment consists of, in a form that compares: the same conda file may
// be YAML or JSON.
func (c *call) definitionOf(tx *store.Tx, p map[string]any) (map[string]any, error) {
	conda := text(p, "condaFile")
	if shown, ok := jsonOf(conda); ok {
		conda = shown
	}
	build := asMap(p["build"])
	context, err := c.contentOf(tx, text(build, "contextUri"))
	return map[string]any{
		"image": text(p, "image"), "condaFile": conda, "osType": strings.ToLower(orElse(text(p, "osType"), "Linux")),
		"build":           [2]string{context, orElse(text(build, "dockerfilePath"), "Dockerfile")},
		"inferenceConfig": without(p["inferenceConfig"]),
	}, err
}

// contentOf is what is in a folder to build from, or what a model consists of: files and what they
// hold, since clients upload the same folder under another name; and its address where that cannot
// be looked at.
func (c *call) contentOf(tx *store.Tx, uri string) (string, error) {
	place, err := c.s.Resolve(tx, c.ws, c.who.User, uri)
	if uri == "" || err != nil || !place.Ours() {
		return strings.TrimSuffix(locate.FullURI(c.ws, uri, dataGroups), "/"), nil //nolint:nilerr // an address that leads nowhere is compared as it is
	}
	var files strings.Builder
	for q := (store.BlobQuery{Container: place.Container, Prefix: place.Name + "/"}); ; {
		page, err := tx.ListBlobs(q)
		if err != nil {
			return "", err
		}
		for _, b := range page {
			fmt.Fprintf(&files, "%q %s\n", strings.TrimPrefix(b.Name, q.Prefix), b.Hash)
			q.After = b.Name
		}
		if len(page) == 0 {
			break
		}
	}
	if files.Len() > 0 {
		return files.String(), nil
	}
	b, err := tx.Blob(place.Container, place.Name)
	if berth.CodeOf(err) == berth.NotFound {
		return place.Container + "/" + place.Name, nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%q %s", path.Base(b.Name), b.Hash), nil
}

// without is a mapping without what is null in it.
func without(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := map[string]any{}
	for k, v := range m {
		if v != nil {
			out[k] = v
		}
	}
	return out
}

// stageOf is where an environment or a component is of which nobody said anything: one without a
// name is but a record of a job.
func stageOf(p map[string]any) string {
	if p["isAnonymous"] == true {
		return "Logged"
	}
	return firstStage
}

// shapeContainer is what a name of environments or components has beside its versions.
func shapeContainer(_ *call, _ *store.Doc, p map[string]any) {
	setDefault(p, "description", "")
	p["provisioningState"] = "Succeeded"
}

// labelsProperty says which labels a version of an environment has.
const labelsProperty = "azureml.labels"

// newest says whether d is the version of its asset that was made last.
func (c *call) newest(d *store.Doc) bool {
	kind, _, _ := strings.Cut(d.Kind, "/")
	latest, ok := c.latest[kind+"/"+d.Name]
	if !ok {
		var own asset.Container
		err := c.s.DB.View(c.ctx(), func(tx *store.Tx) error {
			container, err := tx.Get(d.Workspace, kind, d.Name, "")
			if err != nil {
				return err
			}
			own, err = store.State[asset.Container](container)
			return err
		})
		if latest = own.Latest; err != nil {
			c.s.Log.Error("the newest version is not known", "asset", d.Name, "err", err)
		}
		if c.latest == nil {
			c.latest = map[string]string{}
		}
		c.latest[kind+"/"+d.Name] = latest
	}
	return latest == d.Version
}

// jsonOf is a mapping in YAML as the service shows it: in JSON. Anything else is left alone.
func jsonOf(doc string) (string, bool) {
	var m map[string]any
	if doc == "" || yaml.Unmarshal([]byte(doc), &m) != nil || m == nil {
		return "", false
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if enc.Encode(m) != nil {
		return "", false
	}
	return string(bytes.TrimSpace(b.Bytes())), true
}

// curatedNames answers with the names of the curated environments (ours: Azure has a registry for
// them).
func (s *Server) curatedNames(c *call) error {
	names := []string{}
	if s.CuratedNames != nil {
		names = s.CuratedNames()
	}
	return c.send(http.StatusOK, map[string]any{"value": names})
}
