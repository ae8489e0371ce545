package api

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// This file is the service's own hand: what Azure writes into asset documents, and clients rely on.

// shapeAsset is what every asset version has.
func shapeAsset(_ *call, d *store.Doc, p map[string]any) {
	orNull(p, "description")
	setDefault(p, "tags", map[string]any{})
	setDefault(p, "properties", map[string]any{})
	texts(p, "tags", "properties")
	setDefault(p, "isAnonymous", false)
	p["isArchived"] = d.Archived
	p["provisioningState"] = "Succeeded"
}

// shapeCode gives codeUri the one form the SDK can download from. The path is ours.
func shapeCode(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	if container, name, ok := c.blobOfAny(text(p, "codeUri")); ok {
		p["codeUri"] = locate.CodeHost + "/" + container + "/" + locate.EscapePath(name)
	}
}

// blobOfAny is the container and name of a blob URL of ours, or of another server of the same
// database.
func (c *call) blobOfAny(uri string) (container, name string, ok bool) {
	if container, name, ok = c.s.Blob(uri); ok || !strings.HasPrefix(uri, "https://") {
		return container, name, ok
	}
	err := c.s.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		container, name, ok, err = c.s.BlobOfAny(tx, uri)
		return err
	})
	return container, name, ok && err == nil
}

// How the service spells the resource groups in the places of data and of models.
const (
	dataGroups  = "resourcegroups"
	modelGroups = "resourceGroups"
)

// shapeData: places in datastores are written in full, and those of folders end with a slash.
// Addresses elsewhere stay as they are.
func shapeData(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	orNull(p, "autoDeleteSetting", "stage", "intellectualProperty")
	uri := locate.FullURI(c.ws, text(p, "dataUri"), dataGroups)
	if strings.HasPrefix(uri, "azureml://") && text(p, "dataType") != "uri_file" && !strings.HasSuffix(uri, "/") {
		uri += "/"
	}
	p["dataUri"] = uri
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

// The stage of a model of which nobody said anything, and what is shown as that of an archived one.
const (
	firstStage = "Development"
	lastStage  = "Archived"
)

func stage(d *store.Doc, said string) string {
	if d.Archived {
		return lastStage
	}
	return cmp.Or(said, firstStage)
}

// shapeModel: clients crash without flavors.
func shapeModel(c *call, d *store.Doc, p map[string]any) {
	shapeAsset(c, d, p)
	orNull(p, "autoDeleteSetting", "jobName", "intellectualProperty")
	setDefault(p, "flavors", map[string]any{})
	setDefault(p, "modelType", "custom_model")
	p["stage"] = stage(d, text(p, "stage"))
	p["modelUri"] = locate.FullURI(c.ws, text(p, "modelUri"), modelGroups)
}

func shapeModelContainer(_ *call, _ *store.Doc, p map[string]any) {
	p["provisioningState"] = "Succeeded"
}

// checkModel refuses a model that is nowhere. The stage of one that comes out of the archive is the
// one it had, though a client sends back what it was shown.
func checkModel(c *call, tx *store.Tx, name, version string, p map[string]any) error {
	if text(p, "modelUri") == "" {
		return berth.Errorf(berth.Invalid, "properties.modelUri is missing")
	}
	if err := checkModelThere(c, tx, name, version, text(p, "jobName"), text(p, "modelUri")); err != nil {
		return err
	}
	if !strings.EqualFold(text(p, "stage"), lastStage) {
		return nil
	}
	d, err := tx.Get(c.ws.Key(), "models/versions", name, version)
	if berth.CodeOf(err) == berth.NotFound || err == nil && !d.Archived {
		return nil
	}
	if err != nil {
		return err
	}
	_, old, err := bodyOf(d)
	if err != nil {
		return err
	}
	p["stage"] = old["stage"]
	return nil
}

// checkModelThere refuses a new model at a place where a job that is over left nothing.
func checkModelThere(c *call, tx *store.Tx, name, version, job, uri string) error {
	if job == "" || !strings.HasPrefix(uri, "azureml://") {
		return nil
	}
	d, err := tx.Get(c.ws.Key(), "jobs", job, "")
	if err != nil || !berth.JobStatus(d.Status).Terminal() {
		return nil //nolint:nilerr // it may be there later
	}
	if _, err := tx.Get(c.ws.Key(), "models/versions", name, version); err == nil {
		return nil // files of old jobs may be gone
	}
	place, err := c.s.Resolve(tx, c.ws, c.who.User, uri)
	if err != nil || !place.Ours() {
		return err
	}
	if _, err := tx.Blob(place.Container, place.Name); err == nil {
		return nil
	}
	found, err := tx.ListBlobs(store.BlobQuery{Container: place.Container, Prefix: strings.TrimSuffix(place.Name, "/") + "/", Limit: 1})
	if err != nil || len(found) > 0 {
		return err
	}
	return berth.Missingf("properties.modelUri: job %s, which is %s, has nothing at %s", d.Name, d.Status, uri)
}

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
		p["subscriptionId"], p["resourceGroup"] = c.ws.Subscription, c.ws.Group
	}
	p["isDefault"] = strings.EqualFold(d.Name, defaultDatastore)
	orNull(p, "description", "subscriptionId", "resourceGroup")
	setDefault(p, "serviceDataAccessAuthIdentity", "None")
	setDefault(p, "credentials", map[string]any{"credentialsType": "None"})
	setDefault(p, "tags", map[string]any{})
	setDefault(p, "properties", map[string]any{})
}

// startPendingUpload gives a client a fresh container to put an asset's files into.
func startPendingUpload(c *call, r *resource, name, version string) error {
	if err := berth.CheckName(r.Noun, name); err != nil {
		return err
	}
	// Code downloads use the default datastore's signature, so uploads live in its container, under
	// a prefix of their own.
	container, err := c.s.workspaces.defaultContainer(c.ctx(), c.ws)
	if err != nil {
		return err
	}
	prefix := r.Collection + "-" + berth.NewGUID()[:8]
	err = c.s.DB.Update(c.ctx(), func(tx *store.Tx) error { return blob.Own(tx, container, prefix, c.who.User) })
	if err != nil {
		return err
	}
	g := front.Grant{Container: container, Prefix: prefix, Perm: "rwl", Expiry: c.now.Add(sasLife)}
	uri := c.s.URL(container, prefix)
	return c.send(http.StatusOK, map[string]any{
		"pendingUploadId": nil, "pendingUploadType": "TemporaryBlobReference",
		"blobReferenceForConsumption": map[string]any{
			"blobUri": uri, "storageAccountArmId": c.storageAccount(),
			"credential": map[string]any{"credentialType": "SAS", "sasUri": uri + "?" + c.sign(g)},
		},
	})
}

// sign is a signature for the caller: what is written with it is theirs, and it ends with their
// token.
func (c *call) sign(g front.Grant) string {
	if g.User, g.Holder = c.who.User, c.who.Holder(); c.who.Role == auth.Admin {
		g.Perm += "o"
	}
	return c.s.Signer.Sign(g)
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
