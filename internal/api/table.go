package api

import "github.com/berthml/berth/internal/store"

// resource is one row of the table: everything that tells one collection from another. What a row does not say is the same for
// all of them (resource.go).
type resource struct {
	Collection string // path segment and document kind
	Child      string // second level: "versions" of an asset, "deployments" of an endpoint; empty when there is none
	Noun       string // for messages
	Tracked    bool   // has location and tags at the top
	LRO        bool   // create and delete are long-running operations for clients
	Created    int    // status of a creating PUT; 0 is 201
	// Keep are the properties a PUT on an existing asset version may change; everything else is immutable.
	Keep []string
	// Fixed are the properties that, changed by such a PUT, make it an error instead of being ignored.
	Fixed []string
	// Same refuses a PUT or PATCH that would make something else of an existing asset version; what it lets pass it may write into old.
	Same func(c *call, tx *store.Tx, d *store.Doc, old, asked map[string]any) error
	// Secrets are paths below properties that are kept encrypted and never returned.
	Secrets []string
	// SecretKind is the path of what says which kind of secrets they are.
	SecretKind string
	// Shape adds what the service itself writes into an answer.
	Shape func(c *call, d *store.Doc, props map[string]any)
	// ShapeContainer does it for the first level of a versioned resource.
	ShapeContainer func(c *call, d *store.Doc, props map[string]any)
	// Check refuses documents at create.
	Check func(c *call, tx *store.Tx, name, version string, props map[string]any) error
	// Listed is listed in a manner of its own: names in the order in which they were made, no list for a name that nobody made, and $top is
	// how long a page is and not where the list ends.
	Listed bool
	// Next is the version after the newest, for containers that do not simply count.
	Next func(c *call, latest string) string
	// Put replaces the whole PUT, for the odd one.
	Put func(c *call, r *resource, name string) error
	// Actions are the POSTs below one resource, by lower-case name.
	Actions map[string]func(c *call, r *resource, name, version string) error
	// Delete replaces the whole DELETE.
	Delete func(c *call, r *resource, name string) error
}

// asset fields that may change after a version was created.
var assetKeep = []string{"isArchived", "tags", "description", "properties", "stage", "autoDeleteSetting", "flavors"}

// table is every resource below a workspace. Adding one is adding a row.
func table() []resource {
	pending := map[string]func(*call, *resource, string, string) error{"startpendingupload": startPendingUpload}
	return []resource{
		{Collection: "jobs", Noun: "job", Put: putJob, Delete: deleteJob, Shape: shapeJob, Actions: map[string]func(*call, *resource, string, string) error{"cancel": cancelJob, "plan": planJob}},
		{
			Collection: "computes", Noun: "compute", Tracked: true, LRO: true, Shape: shapeCompute, Put: putCompute, Delete: deleteCompute,
			Secrets: []string{"properties.administratorAccount.password", "properties.administratorAccount.privateKeyData", "properties.userAccountCredentials.adminUserPassword", "properties.databricksAccessToken"},
			Actions: withActions(instanceActions(), map[string]func(*call, *resource, string, string) error{"listnodes": listNodes, "evict": evictNodes, "join": joinCompute}),
		},
		{
			Collection: "datastores", Noun: "datastore", Shape: shapeDatastore, Check: checkDatastore, Delete: deleteDatastore, Secrets: []string{"credentials.secrets"}, SecretKind: "credentials.credentialsType",
			Actions: map[string]func(*call, *resource, string, string) error{"listsecrets": listSecrets},
		},
		{Collection: "codes", Child: "versions", Noun: "code", Keep: assetKeep, Fixed: nil, Shape: shapeCode, Actions: pending},
		{Collection: "environments", Child: "versions", Noun: "environment", Keep: assetKeep, Same: sameEnvironment, Shape: shapeEnvironment, ShapeContainer: shapeContainer, Check: checkEnvironment},
		{Collection: "data", Child: "versions", Noun: "data asset", Keep: assetKeep, Fixed: []string{"dataUri", "dataType"}, Shape: shapeData, ShapeContainer: shapeDataContainer, Check: checkData, Actions: pending},
		{Collection: "models", Child: "versions", Noun: "model", Keep: assetKeep, Fixed: []string{"modelUri"}, Shape: shapeModel, ShapeContainer: shapeModelContainer, Check: checkModel, Listed: true, Actions: pending},
		{Collection: "components", Child: "versions", Noun: "component", Keep: assetKeep, Same: sameComponent, Shape: shapeComponent, ShapeContainer: shapeContainer, Check: checkComponent, Next: timestampVersion},
		{Collection: "featuresets", Child: "versions", Noun: "feature set", Shape: shapeAsset},
		{Collection: "featurestoreEntities", Child: "versions", Noun: "feature store entity", Shape: shapeAsset},
		{
			Collection: "connections", Noun: "connection", Created: 200, Listed: true, Secrets: []string{"credentials"}, SecretKind: "authType", Shape: shapeConnection, Check: checkConnection,
			Actions: map[string]func(*call, *resource, string, string) error{"listsecrets": connectionSecrets},
		},
	}
}

// indexes are assets too, but flat and on the data plane (genericasset.go).
var indexResource = resource{Collection: "indexes", Child: "versions", Noun: "index"}
