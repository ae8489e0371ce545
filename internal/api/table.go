package api

import (
	"encoding/json"
	"slices"

	"github.com/berthml/berth/internal/store"
)

// resource is one row of the table: everything that tells one collection from another. What a row
// does not say is the same for all of them (resource.go).
type resource struct {
	Collection string // path segment and document kind
	Child      string // second level: "versions" of an asset, "deployments" of an endpoint; empty when there is none
	Noun       string // for messages
	ChildNoun  string // of a second level that is not versions
	InGroup    bool   // is below a resource group, not a workspace
	Tracked    bool   // has location and tags at the top
	LRO        bool   // create and delete are long-running operations for clients
	Created    int    // status of a creating PUT; 0 is 201
	// Mutable are the properties a PUT on an existing asset version may change; everything else is
	// immutable.
	Mutable []string
	// Immutable are the properties that such a PUT must not change; changes of the others are
	// ignored.
	Immutable []string
	// Schema gives the types of the members that clients rely on, beside those of all resources;
	// see schema.go.
	Schema map[string]schema
	// Runs says that what the files of a version hold is run: nothing may be added to them either.
	Runs bool
	// FromJob is the property that names the job whose output a version was made of.
	FromJob string
	// ByHash says that a version has the hash its maker says, and that they find it by that under
	// whichever name.
	ByHash bool
	// CheckUnchanged refuses a PUT or PATCH that would make something else of an existing asset
	// version; what it accepts it may write into old.
	CheckUnchanged func(c *call, tx *store.Tx, d *store.Doc, old, asked map[string]any) error
	// Secrets are paths below properties that are kept encrypted and never returned.
	Secrets []string
	// SecretKind is the path of what says which kind of secrets they are, and SecretFor are those
	// of what they open: where one of these changes, the secrets that there were are not kept.
	SecretKind string
	SecretFor  []string
	// MakerOnly says that it is changed and deleted by its maker or an administrator. Versions of
	// assets always are.
	MakerOnly bool
	// KeepsName says that the name of one that was deleted is for its maker or an administrator to
	// use again. Versions of assets always are.
	KeepsName bool
	// Mark adds to what is kept beside a document, which was had before.
	Mark func(c *call, d *store.Doc, had json.RawMessage, created bool) error
	// Shape adds what the service itself writes into an answer.
	Shape func(c *call, d *store.Doc, props map[string]any)
	// ShapeContainer does it for the first level of a versioned resource.
	ShapeContainer func(c *call, d *store.Doc, props map[string]any)
	// Check refuses documents at create.
	Check func(c *call, tx *store.Tx, name, version string, props map[string]any) error
	// Always is a document that is there without having been made, such as an environment everybody
	// knows, and Newest its newest version.
	Newest string
	Always func(c *call, name, version string) (d *store.Doc, ok bool, err error)
	// Wanted is a filter of lists beside those that all have.
	Wanted func(c *call, d *store.Doc) bool
	// NativePaging lists names in the order in which they were created, has no list for a name that
	// nobody created, and takes $top as the length of a page and not as the end of the list.
	NativePaging bool
	// Next is the version after the newest, for containers that do not simply count.
	Next func(c *call, latest string) string
	// Zulu says that its times end in Z, and PlainMissing that to name one that is not there is no
	// error of the user's: they are parts of the service that answer in a manner of their own.
	Zulu, PlainMissing bool
	// Put replaces the whole PUT, for the odd one.
	Put func(c *call, r *resource, name string) error
	// Actions are the POSTs below one resource, by lower-case name.
	Actions map[string]func(c *call, r *resource, name, version string) error
	// Questions are the Actions that change nothing and tell no secret: readers may ask them.
	Questions []string
	// CheckDelete refuses to delete a document.
	CheckDelete func(c *call, tx *store.Tx, d *store.Doc) error
	// Delete replaces the whole DELETE.
	Delete func(c *call, r *resource, name string) error
	// Inert says what does not happen yet with what is kept as a document only. Who makes one is
	// told.
	Inert string
	// Unserved is a collection of Azure's that this server does not have; its Noun is in the
	// plural.
	Unserved bool
}

// asset fields that may change after a version was created.
var assetMutable = []string{"isArchived", "tags", "description", "properties", "stage", "autoDeleteSetting", "flavors"}

// actions are the POSTs below one resource.
type actions = map[string]func(c *call, r *resource, name, version string) error

// table is every resource below a workspace or a resource group. Adding one is adding a row.
func table() []resource {
	return slices.Concat(jobRows(), assetRows(), serviceRows(), unservedRows())
}

// jobRows are jobs, and what they run on and from.
func jobRows() []resource {
	return []resource{
		{
			Collection: "jobs", Noun: "job", Put: putJob, Delete: deleteJob, Shape: shapeJob, Wanted: wantedJob,
			Actions: actions{"cancel": cancelJob, "plan": planJob, "open": openService}, Questions: []string{"plan"},
		},
		{
			Collection: "computes", Noun: "compute", Tracked: true, LRO: true, PlainMissing: true, Shape: shapeCompute, Put: putCompute, Delete: deleteCompute,
			Wanted:  wantedCompute,
			Secrets: []string{"properties.administratorAccount.password", "properties.administratorAccount.privateKeyData", "properties.userAccountCredentials.adminUserPassword", "properties.databricksAccessToken", "properties.kubeconfig", "properties.restSettings.token"},
			Actions: withActions(instanceActions(), actions{"listnodes": listNodes, "evict": evictNodes, "join": joinCompute}), Questions: []string{"listnodes"},
		},
		{
			Collection: "datastores", Noun: "datastore", Schema: datastoreSchema, Shape: shapeDatastore, Check: checkDatastore, Delete: deleteDatastore, Wanted: wantedDatastore,
			Secrets: []string{"credentials.secrets"}, SecretKind: "credentials.credentialsType",
			SecretFor: []string{"datastoreType", "accountName", "containerName", "fileShareName", "filesystem", "endpoint", "protocol", "storeName", "bucket", "credentials.accessKeyId", "credentials.authorityUrl", "credentials.tenantId", "credentials.clientId", "credentials.resourceUrl"},
			MakerOnly: true, KeepsName: true, Mark: markDatastore, Actions: actions{"listsecrets": listSecrets},
		},
	}
}

// assetRows are the resources that have versions.
func assetRows() []resource {
	pending := actions{"startpendingupload": startPendingUpload}
	return []resource{
		{Collection: "codes", Child: "versions", Noun: "code", Schema: codeSchema, Mutable: assetMutable, ByHash: true, Runs: true, Shape: shapeCode, Actions: pending},
		{
			Collection: "environments", Child: "versions", Noun: "environment", Schema: environmentSchema, Mutable: assetMutable, Runs: true, CheckUnchanged: sameEnvironment, Always: curatedEnvironment, Newest: curatedVersion,
			Shape: shapeEnvironment, ShapeContainer: shapeContainer, Check: checkEnvironment,
		},
		{
			Collection: "data", Child: "versions", Noun: "data asset", Schema: dataSchema, Mutable: assetMutable, Immutable: []string{"dataUri", "dataType"},
			Shape: shapeData, ShapeContainer: shapeDataContainer, Check: checkData, Actions: pending,
		},
		{
			Collection: "models", Child: "versions", Noun: "model", Schema: modelSchema, Mutable: assetMutable, Immutable: []string{"modelUri"}, FromJob: "jobName",
			Shape: shapeModel, ShapeContainer: shapeModelContainer, Check: checkModel, Wanted: wantedModel, NativePaging: true, Actions: pending,
		},
		{
			Collection: "components", Child: "versions", Noun: "component", Schema: componentSchema, Mutable: assetMutable, CheckUnchanged: sameComponent,
			Shape: shapeComponent, ShapeContainer: shapeContainer, Check: checkComponent, Next: timestampVersion,
		},
		{Collection: "featuresets", Child: "versions", Noun: "feature set", Shape: shapeAsset},
		{Collection: "featurestoreEntities", Child: "versions", Noun: "feature store entity", Shape: shapeAsset},
	}
}

// serviceRows are connections, and what is kept as a document only.
func serviceRows() []resource {
	return []resource{
		{
			Collection: "connections", Noun: "connection", Created: 200, NativePaging: true, Zulu: true, Schema: connectionSchema, Secrets: []string{"credentials"}, SecretKind: "authType",
			SecretFor: []string{"target", "category"}, MakerOnly: true, KeepsName: true,
			Shape: shapeConnection, Check: checkConnection, Wanted: wantedConnection, Actions: actions{"listsecrets": connectionSecrets},
		},
		{
			Collection: "onlineEndpoints", Child: "deployments", Noun: "online endpoint", ChildNoun: "deployment", Tracked: true, LRO: true, Schema: endpointSchema,
			Secrets: []string{"keys"}, SecretKind: "authMode", Shape: shapeOnline, Check: checkOnline, CheckDelete: checkTraffic, Wanted: wantedEndpoint,
			MakerOnly: true, KeepsName: true, Mark: markDeployment, Questions: []string{"getlogs", "explain", "metrics"},
			Actions: actions{
				"listkeys": endpointKeys, "regeneratekeys": newEndpointKey, "token": endpointToken, "getlogs": deploymentLogs,
				"explain": explainEndpoint, "metrics": endpointMetrics, "rollback": rollBack,
			},
		},
		{
			Collection: batchCollection, Child: "deployments", Noun: "batch endpoint", ChildNoun: "deployment", Tracked: true, LRO: true, Schema: endpointSchema,
			Secrets: []string{"keys"}, SecretKind: "authMode", Shape: shapeBatch, Check: checkBatch, MakerOnly: true, KeepsName: true,
			Actions: actions{"listkeys": endpointKeys, "regeneratekeys": newEndpointKey},
		},
		{
			Collection: "schedules", Noun: "schedule", LRO: true, Schema: scheduleSchema, Shape: shapeSchedule, Check: checkSchedule, Wanted: wantedSchedule, MakerOnly: true, KeepsName: true,
			Inert: "schedules are kept as documents: none of them starts a job yet",
		},
		{
			Collection: "registries", Noun: "registry", InGroup: true, Tracked: true, Shape: shapeRegistry,
			Inert: "registries are kept as documents: no assets can be put into them yet",
		},
	}
}

// unservedRows are the collections of Azure that this server does not have.
func unservedRows() []resource {
	return []resource{
		{Collection: "capabilityHosts", Noun: "capability hosts", Unserved: true},
		{Collection: "labelingJobs", Noun: "labeling jobs", Unserved: true},
		{Collection: "marketplaceSubscriptions", Noun: "marketplace subscriptions", Unserved: true},
		{Collection: "outboundRules", Noun: "outbound rules", Unserved: true},
		{Collection: "privateEndpointConnections", Noun: "private endpoint connections", Unserved: true},
		{Collection: "serverlessEndpoints", Noun: "serverless endpoints", Unserved: true},
	}
}

// indexes are assets too, but flat and on the data plane (genericasset.go).
var indexResource = resource{Collection: "indexes", Child: "versions", Noun: "index"}
