package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/asset"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// This file is the service's own hand: what Azure writes into asset documents, and clients rely on.

// shapeAsset is what every asset version has.
func shapeAsset(_ *call, d *store.Doc, p map[string]any) {
	setDefault(p, "tags", map[string]any{})
	setDefault(p, "properties", map[string]any{})
	setDefault(p, "isAnonymous", false)
	p["isArchived"] = d.Archived
	p["provisioningState"] = "Succeeded"
}

// shapeCode gives codeUri the one form the SDK can download from. The path is ours.
func shapeCode(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	if container, name, ok := c.s.Blob(text(p, "codeUri")); ok {
		p["codeUri"] = locate.CodeHost + "/" + container + "/" + locate.EscapePath(name)
	}
}

// shapeData: folders end with a slash.
func shapeData(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	if uri := text(p, "dataUri"); uri != "" && text(p, "dataType") != "uri_file" && !strings.HasSuffix(uri, "/") {
		p["dataUri"] = uri + "/"
	}
}

func shapeDataContainer(_ *call, _ *store.Doc, p map[string]any) {
	setDefault(p, "dataType", "uri_folder")
}

func checkData(_ *call, _ *store.Tx, _, _ string, p map[string]any) error {
	switch text(p, "dataType") {
	case "uri_file", "uri_folder", "mltable":
	default:
		return berth.Errorf(berth.Invalid, "properties.dataType %q is not uri_file, uri_folder or mltable", text(p, "dataType"))
	}
	if text(p, "dataUri") == "" {
		return berth.Errorf(berth.Invalid, "properties.dataUri is missing")
	}
	return nil
}

// shapeModel: clients crash without flavors.
func shapeModel(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	setDefault(p, "flavors", map[string]any{})
	setDefault(p, "modelType", "custom_model")
}

func checkModel(_ *call, _ *store.Tx, _, _ string, p map[string]any) error {
	if text(p, "modelUri") == "" {
		return berth.Errorf(berth.Invalid, "properties.modelUri is missing")
	}
	return nil
}

// curatedVersion is the latest version of environments that are always there.
const curatedVersion = "1"

// curatedEnvironment is the document of an environment that is always there: it answers for every version somebody names, and for the
// container. The first that somebody makes of that name takes its place.
func (s *Server) curatedEnvironment(workspace, name, version string) (*store.Doc, bool) {
	env, ok := s.Curated(name)
	if !ok {
		return nil, false
	}
	if version == "" {
		own, err := json.Marshal(asset.Container{Latest: curatedVersion, Next: curatedVersion})
		return &store.Doc{Workspace: workspace, Kind: "environments", Name: name, Body: json.RawMessage(`{"properties":{}}`), Own: own}, err == nil
	}
	body, err := json.Marshal(map[string]any{"properties": map[string]any{
		"image": "mcr.microsoft.com/azureml/curated/" + name + ":" + version, "condaFile": env.Conda, "osType": "Linux",
		"environmentType": "Curated", "description": "stands in for the curated environment of that name",
	}})
	if err != nil {
		return nil, false
	}
	return &store.Doc{Workspace: workspace, Kind: "environments/versions", Name: name, Version: version, Body: body}, true
}

func checkEnvironment(_ *call, _ *store.Tx, _, _ string, p map[string]any) error {
	if p["image"] == nil && p["build"] == nil && p["condaFile"] == nil {
		return berth.Errorf(berth.Invalid, "an environment needs properties.image, properties.build or properties.condaFile")
	}
	return nil
}

// shapeComponent writes into componentSpec what the service writes.
func shapeComponent(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	spec, ok := p["componentSpec"].(map[string]any)
	if !ok {
		return
	}
	setDefault(spec, "name", d.Name)
	setDefault(spec, "version", d.Version)
	kind := text(spec, "type")
	switch kind {
	case "command":
		setDefault(spec, "resources", map[string]any{"instance_count": 1})
	case "parallel":
		delete(spec, "resources")
	case "pipeline":
		setDefault(spec, "is_deterministic", false)
	}
	if inputs, ok := spec["inputs"].(map[string]any); ok {
		for _, v := range inputs {
			in, ok := v.(map[string]any)
			if !ok {
				continue
			}
			switch kind {
			case "command", "pipeline", "spark", "data_transfer":
				setDefault(in, "optional", false)
			}
			if kind == "spark" {
				delete(in, "mode")
			}
			if def, ok := in["default"].(string); ok && kind == "pipeline" {
				in["default"] = strings.TrimPrefix(def, "azureml:")
			}
		}
	}
	if outputs, ok := spec["outputs"].(map[string]any); ok {
		for _, v := range outputs {
			out, ok := v.(map[string]any)
			if !ok {
				continue
			}
			if kind == "spark" {
				delete(out, "mode")
			}
			if kind == "pipeline" && text(out, "type") == "boolean" {
				setDefault(out, "early_available", true)
			}
		}
	}
	if dist, ok := spec["distribution"].(map[string]any); ok {
		for k, v := range dist {
			if n, ok := v.(json.Number); ok {
				dist[k] = n.String()
			}
		}
	}
	curatedInSpec(spec)
	if task, ok := spec["task"].(map[string]any); ok {
		curatedInSpec(task)
	}
}

// curatedInSpec gives a curated environment its registry address.
func curatedInSpec(m map[string]any) {
	ref, ok := strings.CutPrefix(text(m, "environment"), "azureml:")
	if !ok || !strings.HasPrefix(ref, "AzureML-") {
		return
	}
	if name, version, ok := strings.Cut(ref, ":"); ok {
		m["environment"] = "azureml://registries/azureml/environments/" + name + "/versions/" + version
	}
}

// sameComponent refuses to change what a component runs. Names and texts for people may change.
func sameComponent(d *store.Doc, old, new map[string]any) error {
	a, _ := old["componentSpec"].(map[string]any)
	b, _ := new["componentSpec"].(map[string]any)
	if a == nil || b == nil {
		return nil
	}
	if strings.EqualFold(d.Name, "azureml_anonymous") {
		old["componentSpec"] = b // its version is the hash of what it runs; the rest may differ
		return nil
	}
	was := map[string]any{"environment": a["environment"]}
	curatedInSpec(was)
	curatedInSpec(b)
	for _, k := range []string{"command", "code", "environment", "type"} {
		if _, ok := was[k]; !ok {
			was[k] = a[k]
		}
		if v, ok := b[k]; ok && !reflect.DeepEqual(v, was[k]) {
			return berth.Errorf(berth.Conflict, "component %s:%s exists with another %s; versions do not change, make a new one", d.Name, d.Version, k)
		}
	}
	for _, k := range []string{"description", "display_name", "tags"} {
		if v, ok := b[k]; ok {
			a[k] = v
		}
	}
	return nil
}

// timestampVersion is how Azure numbers components.
func timestampVersion(c *call, _ string) string {
	t := c.now.UTC()
	return t.Format("2006-01-02-15-04-05-") + padLeft(strconv.Itoa(t.Nanosecond()/100), 7)
}

func padLeft(s string, n int) string { return strings.Repeat("0", max(0, n-len(s))) + s }

func shapeConnection(_ *call, _ *store.Doc, p map[string]any) { p["credentials"] = nil }

// The storage a workspace starts with.
const (
	defaultDatastore  = "workspaceblobstore"
	artifactDatastore = "workspaceartifactstore"
)

// shapeDatastore shows our own stores where the server is now, and never a secret.
func shapeDatastore(c *call, d *store.Doc, p map[string]any) {
	if container, ok := c.ownContainer(d); ok {
		p["datastoreType"] = "AzureBlob"
		p["containerName"] = container
		p["protocol"] = "https"
		p["endpoint"] = c.s.Suffix
		p["accountName"] = strings.TrimPrefix(c.s.BaseURL, "https://") + "/" + c.s.Account
		if c.s.Zone != "" {
			p["endpoint"], p["accountName"] = c.s.Zone, c.s.Account
		}
		p["credentials"] = map[string]any{"credentialsType": "AccountKey"}
	}
	p["isDefault"] = strings.EqualFold(d.Name, defaultDatastore)
	setDefault(p, "credentials", map[string]any{"credentialsType": "None"})
	setDefault(p, "tags", map[string]any{})
	setDefault(p, "properties", map[string]any{})
}

// datastoreOwn marks the datastores that are our own storage.
type datastoreOwn struct {
	Container string `json:"container,omitempty"`
}

// ownContainer is the container of a datastore that is our own.
func (c *call) ownContainer(d *store.Doc) (string, bool) {
	var own datastoreOwn
	if len(d.Own) == 0 || json.Unmarshal(d.Own, &own) != nil || own.Container == "" {
		return "", false
	}
	return own.Container, true
}

func ownDatastore(name string) bool {
	return strings.EqualFold(name, defaultDatastore) || strings.EqualFold(name, artifactDatastore)
}

func deleteDatastore(c *call, r *resource, name string) error {
	if ownDatastore(name) {
		return berth.Errorf(berth.Conflict, "datastore %s is the workspace's own and cannot be deleted", name)
	}
	return c.s.remove(c, r, name, "")
}

func checkDatastore(_ *call, tx *store.Tx, name, _ string, p map[string]any) error {
	if ownDatastore(name) {
		return berth.Errorf(berth.Conflict, "datastore %s is the workspace's own and cannot be changed", name)
	}
	switch text(p, "datastoreType") {
	case "AzureBlob", "AzureFile", "AzureDataLakeGen1", "AzureDataLakeGen2", "OneLake", "Hdfs":
		return nil
	}
	return berth.Errorf(berth.Invalid, "properties.datastoreType %q is not AzureBlob, AzureFile, AzureDataLakeGen1, AzureDataLakeGen2 or OneLake", text(p, "datastoreType"))
}

// startPendingUpload gives a client a fresh container to put an asset's files into.
func startPendingUpload(c *call, r *resource, name, version string) error {
	if err := berth.CheckName(r.Noun, name); err != nil {
		return err
	}
	// Code downloads use the default datastore's signature, so uploads live in its container, under a prefix of their own.
	container, err := c.s.defaultContainer(c.ctx(), c.ws)
	if err != nil {
		return err
	}
	prefix := r.Collection + "-" + berth.NewGUID()[:8]
	g := front.Grant{Container: container, Prefix: prefix, Perm: "rwl", Expiry: c.now.Add(sasLife)}
	uri := c.s.URL(container, prefix)
	return c.send(http.StatusOK, map[string]any{
		"pendingUploadId": nil, "pendingUploadType": "TemporaryBlobReference",
		"blobReferenceForConsumption": map[string]any{
			"blobUri": uri, "storageAccountArmId": c.storageAccount(),
			"credential": map[string]any{"credentialType": "SAS", "sasUri": uri + "?" + c.s.Signer.Sign(g)},
		},
	})
}

func (c *call) storageAccount() string {
	return "/subscriptions/" + c.ws.Subscription + "/resourceGroups/" + c.ws.Group + "/providers/Microsoft.Storage/storageAccounts/" + c.s.Account
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}
