package api_test

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

// What the service writes into documents of its own accord, as seen of Azure's.

const full = "azureml://subscriptions/sub/resourcegroups/Group/workspaces/lab/datastores/workspaceblobstore/paths/"

// A place in a datastore is written in full; that it was sent without the workspace makes no
// difference to the service.
func TestDataIsWrittenInFull(t *testing.T) {
	x := open(t)
	for _, c := range []struct{ kind, sent, shown string }{
		{"uri_file", "azureml://datastores/workspaceblobstore/paths/a/f.csv", full + "a/f.csv"},
		{"uri_folder", "azureml://datastores/workspaceblobstore/paths/a", full + "a/"},
		{"mltable", full + "a", full + "a/"},
		{"uri_folder", "https://far.example/a", "https://far.example/a"},
		{"uri_file", "wasbs://c@far.example/a", "wasbs://c@far.example/a"},
	} {
		path := x.ws + "/data/" + c.kind + strings.NewReplacer("/", "-", ":", "-", "@", "-").Replace(c.sent)
		put := func(uri string) answer {
			return x.do("PUT", path+"/versions/1", props("dataType", c.kind, "dataUri", uri))
		}
		put(c.sent).want(201).is("properties.dataUri", c.shown)
		x.do("GET", path+"/versions/1", nil).want(200).is("properties.dataUri", c.shown)
		put(c.shown).want(200)
		put(c.sent).want(200).is("properties.dataUri", c.shown)
		put(c.shown + "more").want(409)
		x.do("GET", path, nil).want(200).is("properties.dataType", c.kind)
	}
}

// Members that nobody gave a value are there, without one: scripts take them for granted.
func TestNothingIsSaid(t *testing.T) {
	x := open(t)
	for path, c := range map[string]struct {
		body  map[string]any
		nulls string
	}{
		"/data/d/versions/1":   {props("dataType", "uri_file", "dataUri", full+"f"), "description autoDeleteSetting stage intellectualProperty"},
		"/models/m/versions/1": {props("modelUri", full+"f"), "description autoDeleteSetting jobName intellectualProperty"},
		"/datastores/far":      {props("datastoreType", "AzureBlob", "accountName", "a", "containerName", "c"), "description subscriptionId resourceGroup"},
		"/models/empty":        {props(), "description latestVersion"},
	} {
		a := x.do("PUT", x.ws+path, c.body).want(201)
		if where := a.header.Get("Location"); where != "https://127.0.0.1:8443"+x.ws+path {
			t.Errorf("%s was made at %q", path, where)
		}
		got, _ := x.do("GET", x.ws+path, nil).want(200).at("properties").(map[string]any)
		for k := range strings.FieldsSeq(c.nulls) {
			if v, ok := got[k]; !ok || v != nil {
				t.Errorf("%s: %s is %v, %v", path, k, v, ok)
			}
		}
		if at, _ := a.at("systemData.createdAt").(string); !strings.HasSuffix(at, "+00:00") {
			t.Errorf("%s was made at %s", path, at)
		}
		if a := x.do("PUT", x.ws+path, c.body).want(200); a.header.Get("Location") != "" {
			t.Errorf("%s was made a second time", path)
		}
	}
	x.do("GET", x.ws+"/models/empty", nil).is("properties.nextVersion", "1").is("properties.provisioningState", "Succeeded")
	x.do("GET", x.ws+"/datastores/far", nil).is("properties.serviceDataAccessAuthIdentity", "None")
	x.do("GET", x.ws+"/datastores/workspaceblobstore", nil).is("properties.subscriptionId", "sub").is("properties.resourceGroup", "Group")
}

// A model is in development until somebody says otherwise, and that is how it is found.
func TestModelStages(t *testing.T) {
	x := open(t)
	path := x.ws + "/models/m/versions"
	x.do("PUT", path+"/1", props("modelUri", "azureml://datastores/workspaceblobstore/paths/m")).want(201).is("properties.stage", "Development").
		is("properties.modelUri", strings.Replace(full, "groups", "Groups", 1)+"m")
	x.do("PUT", path+"/2", props("modelUri", full+"m", "stage", "Production")).want(201).
		is("properties.modelUri", strings.Replace(full, "groups", "Groups", 1)+"m")
	x.do("PUT", path+"/2", props("modelUri", strings.Replace(full, "groups", "Groups", 1)+"m", "isArchived", false)).want(200).is("properties.stage", "Production")
	x.do("GET", path+"?stage=Development", nil).want(200).is("value.0.name", "1").is("value.1", nil)
	x.do("GET", path+"?stage=production", nil).want(200).is("value.0.name", "2").is("value.1", nil)

	// In the archive that is its stage; a client that sends back what it was shown does not lose
	// the one it had.
	back := func(archived bool) answer {
		shown, _ := x.do("GET", path+"/2", nil).want(200).at("properties").(map[string]any)
		shown["isArchived"] = archived
		return x.do("PUT", path+"/2", map[string]any{"properties": shown}).want(200)
	}
	back(true).is("properties.stage", "Archived")
	x.do("GET", path+"?listViewType=All&stage=Archived", nil).want(200).is("value.0.name", "2").is("value.1", nil)
	back(true).is("properties.stage", "Archived")
	back(false).is("properties.stage", "Production")
	x.do("PUT", path+"/1", props("isArchived", true)).want(200).is("properties.stage", "Archived")
	x.do("PUT", path+"/1", props("isArchived", false)).want(200).is("properties.stage", "Development")
}

// Names of models are listed as they were made, their versions newest first; the versions of a
// model that is not there are not found.
func TestModelLists(t *testing.T) {
	x := open(t)
	for _, v := range []string{"a/versions/1", "c/versions/1", "b/versions/1", "a/versions/2"} {
		x.do("PUT", x.ws+"/models/"+v, props("modelUri", full+"m")).want(201)
	}
	x.do("GET", x.ws+"/models", nil).want(200).is("value.0.name", "a").is("value.1.name", "c").is("value.2.name", "b")
	x.do("GET", x.ws+"/models?$orderBy=createdtime%20desc", nil).want(200).is("value.0.name", "b")
	x.do("GET", x.ws+"/models/a/versions", nil).want(200).is("value.0.name", "2").is("value.1.name", "1")
	a := x.do("GET", x.ws+"/models/a/versions?$orderBy=createdtime%20desc&$top=1", nil).want(200).is("value.0.name", "2").is("value.1", nil)
	next, _ := a.at("nextLink").(string)
	x.do("GET", strings.TrimPrefix(next, "https://127.0.0.1:8443"), nil).want(200).is("value.0.name", "1").is("value.1", nil).is("nextLink", nil)
	x.do("GET", x.ws+"/models/none/versions?$orderBy=createdtime%20desc&$top=1", nil).want(404).says("none", "not found")
}

// A signature is handed out with its question mark, to be put behind an address.
func TestSignatureIsAQuery(t *testing.T) {
	x := open(t)
	sas, _ := x.do("POST", x.ws+"/datastores/workspaceblobstore/listSecrets", nil).want(200).at("sasToken").(string)
	if !strings.HasPrefix(sas, "?sv=") {
		t.Errorf("sasToken %q", sas)
	}
}

// Of the key of an account elsewhere a client may ask for what ends, and then it does not get the
// key.
func TestSecretsThatEnd(t *testing.T) {
	x := open(t)
	path := x.ws + "/datastores/far"
	key := map[string]any{"secretsType": "AccountKey", "key": "a2V5"}
	x.do("PUT", path, props("datastoreType", "AzureBlob", "accountName", "far", "containerName", "c", "credentials", map[string]any{"credentialsType": "AccountKey", "secrets": key})).want(201)
	for _, body := range []any{nil, map[string]any{"expirableSecret": false, "expireAfterHours": 1}} {
		x.do("POST", path+"/listSecrets", body).want(200).is("secretsType", "AccountKey").is("key", "a2V5")
	}
	a := x.do("POST", path+"/listSecrets", map[string]any{"expirableSecret": true, "expireAfterHours": 2}).want(200).is("secretsType", "Sas").is("key", nil)
	q, err := url.ParseQuery(strings.TrimPrefix(a.at("sasToken").(string), "?"))
	if err != nil {
		t.Fatal(err)
	}
	end, err := time.Parse(time.RFC3339, q.Get("se"))
	if left := time.Until(end); err != nil || left < time.Hour || left > 2*time.Hour {
		t.Errorf("it ends %s, %v", end, err)
	}
	x.do("POST", path+"/listSecrets", map[string]any{"expirableSecret": true, "expireAfterHours": -1}).want(400).says("expireAfterHours")
	sas := map[string]any{"secretsType": "Sas", "sasToken": "sv=1"}
	x.do("PUT", path, props("datastoreType", "AzureBlob", "accountName", "far", "containerName", "c", "credentials", map[string]any{"credentialsType": "Sas", "secrets": sas})).want(200)
	x.do("POST", path+"/listSecrets", map[string]any{"expirableSecret": true}).want(200).is("sasToken", "sv=1")
}

// A kind of connection is spelt as the service spells it, whatever a client wrote; one it does not
// know stays.
func TestConnectionCategories(t *testing.T) {
	x := open(t)
	for sent, shown := range map[string]string{"AzureOpenAi": "AzureOpenAI", "openai": "OpenAI", "Git": "Git", "adlsgen2": "ADLSGen2", "NewKind": "NewKind"} {
		path := x.ws + "/connections/" + sent
		x.do("PUT", path, props("category", sent, "authType", "ApiKey", "credentials", map[string]any{"key": "k"})).want(200)
		got, _ := x.do("GET", path, nil).want(200).is("properties.category", shown).is("properties.createdByWorkspaceArmId", x.ws).
			is("properties.metadata", map[string]any{}).is("properties.sharedUserList", []any{}).at("properties").(map[string]any)
		for _, k := range []string{"target", "expiryTime", "error", "credentials"} {
			if v, ok := got[k]; !ok || v != nil {
				t.Errorf("%s is %v, %v", k, v, ok)
			}
		}
	}
}

// Connections are listed as they were made.
func TestConnectionList(t *testing.T) {
	x := open(t)
	for _, name := range []string{"b", "a", "c"} {
		x.do("PUT", x.ws+"/connections/"+name, props("category", "Git", "authType", "None", "target", "https://"+name)).want(200)
	}
	x.do("GET", x.ws+"/connections?includeAll=false", nil).want(200).is("value.0.name", "b").is("value.1.name", "a").is("value.2.name", "c")
}

// A workspace says what it has not, where clients look for it; what somebody gave it stays.
func TestPlainWorkspace(t *testing.T) {
	x := open(t)
	network := map[string]any{"isolationMode": "AllowInternetOutbound"}
	other := strings.Replace(x.ws, "/lab", "/other", 1)
	x.do("PUT", other, props("managedNetwork", network, "v1LegacyMode", true)).want(200).is("properties.managedNetwork", network).is("properties.v1LegacyMode", true)
	x.do("GET", x.ws, nil).want(200).is("properties.managedNetwork.isolationMode", "Disabled").is("properties.v1LegacyMode", false).
		is("properties.systemDatastoresAuthMode", "accesskey").is("properties.privateLinkCount", 0)
	a := x.do("GET", x.ws, nil)
	if at, _ := a.at("systemData.createdAt").(string); !strings.HasSuffix(at, "Z") {
		t.Errorf("a workspace was made at %s", at)
	}
	a.is("properties.tenantId", a.at("identity.tenantId")).is("properties.creationTime", a.at("systemData.createdAt"))
}

// A workspace that names no place is where its resource group is, as Azure's clients have it.
func TestWorkspaceIsWhereItsGroupIs(t *testing.T) {
	x := open(t)
	group, _, _ := strings.Cut(x.ws, "/resourceGroups/")
	x.do("PUT", group+"/resourceGroups/far", `{"location": "westeurope"}`).want(201)
	in := func(group string) string { return strings.Replace(x.ws, "/Group/", "/"+group+"/", 1) + "-new" }
	x.do("PUT", in("FAR"), props()).want(200).is("location", "westeurope")
	x.do("PUT", in("far")+"2", map[string]any{"location": "eastus", "properties": map[string]any{}}).want(200).is("location", "eastus")
	x.do("PUT", in("Group"), props()).want(200).is("location", x.do("GET", x.ws, nil).at("location"))
	x.do("PUT", group+"/resourceGroups/far", `{"location": "elsewhere"}`).want(200)
	x.do("GET", in("far"), nil).want(200).is("location", "westeurope")
}

// An index is made with 200, and the next version comes with the latest.
func TestIndexVersions(t *testing.T) {
	x := open(t)
	path := "/genericasset" + x.ws + "/indexes/i"
	next := func() answer { return x.do("POST", path+":getNextVersion", nil).want(200) }
	if a := next().is("nextVersion", 1); a.at("latestVersion") != nil {
		t.Errorf("latest of nothing: %s", a.raw)
	}
	x.do("PUT", path+"/versions/1", map[string]any{"storageUri": full + "i"}).want(200)
	next().is("nextVersion", 2).is("latestVersion", "1")
	x.do("PUT", path+"/versions/blue", map[string]any{"storageUri": full + "i"}).want(200)
	next().is("nextVersion", 2).is("latestVersion", "blue")
}
