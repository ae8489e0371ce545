package api_test

import (
	"strings"
	"testing"
)

// What this server does not have is refused with a sentence that says so, not with an address that
// leads nowhere.
func TestNotServedYet(t *testing.T) {
	x := open(t)
	group := "/subscriptions/sub/resourceGroups/Group/providers/Microsoft.MachineLearningServices"
	for path, noun := range map[string]string{
		x.ws + "/serverlessEndpoints/e":      "serverless endpoints",
		x.ws + "/ServerlessEndpoints/e/x/y":  "serverless endpoints",
		x.ws + "/marketplaceSubscriptions/e": "marketplace subscriptions",
		x.ws + "/outboundRules/e":            "outbound rules",
		group + "/capabilityHosts/h":         "capability hosts",
	} {
		x.do("PUT", path, props("a", "b")).want(400).is("error.code", "NotSupported").says("this server has no " + noun + " yet")
		x.do("GET", path, nil).want(404).is("error.code", "ResourceNotFound").says("this server has no " + noun + " yet")
	}
	x.do("GET", x.ws+"/labelingJobs", nil).want(404).says("this server has no labeling jobs yet")
	x.do("GET", "/subscriptions/sub/providers/Microsoft.MachineLearningServices/capabilityHosts", nil).want(404).says("this server has no capability hosts yet")
	x.do("PUT", x.ws+"/nosuch/e", props("a", "b")).want(404).says("there is nothing at")
	x.do("PUT", strings.Replace(x.ws, "lab", "none", 1)+"/schedules/s", props("a", "b")).want(404).says("no workspace none")
}

func TestMethods(t *testing.T) {
	x := open(t)
	for _, c := range [][2]string{{"POST", x.ws + "/jobs"}, {"PATCH", x.ws + "/jobs/cancel/cancel"}, {"DELETE", "/subscriptions"}, {"FOO", "/subscriptions"}, {"PUT", "/tenants"}, {"DELETE", x.ws + "/datastores"}} {
		if a := x.do(c[0], c[1], nil); a.status != 405 && a.status != 404 {
			t.Errorf("%s %s gives %d %s", c[0], c[1], a.status, a.raw)
		}
	}
	x.do("POST", x.ws+"/jobs", nil).want(405).is("error.code", "MethodNotAllowed")
	x.do("HEAD", x.ws+"/jobs", nil).want(200)
	x.do("HEAD", x.ws+"/data/none/versions", nil).want(200)
	x.do("HEAD", "/subscriptions", nil).want(200)
}

// A document is one JSON value and nothing more.
func TestTrailingText(t *testing.T) {
	x := open(t)
	for _, tail := range []string{" x", "{}", "]", "\x00"} {
		x.do("PUT", x.ws+"/environments/e/versions/1", `{"properties":{"image":"i"}}`+tail).want(400).says("after the JSON object")
		x.do("POST", "/data/v1.0"+x.ws+"/dataversion/batchGetResolvedUris", `{"values":[]}`+tail).want(400)
	}
	x.do("PUT", x.ws+"/environments/e/versions/1", `{"properties":{"image":"i"}}`+" \r\n\t").want(201)
}

func TestConnectionsByCategory(t *testing.T) {
	x := open(t)
	for name, kind := range map[string]string{"a": "S3", "b": "Git", "c": "PythonFeed"} {
		x.do("PUT", x.ws+"/connections/"+name, props("category", kind, "authType", "None", "target", "https://"+name)).want(200)
	}
	for query, want := range map[string]int{"": 3, "?category=s3": 1, "?category=pythonFeed": 1, "?category=none": 0, "?target=https://b": 1} {
		a := x.do("GET", x.ws+"/connections"+query, nil).want(200)
		if got, _ := a.at("value").([]any); len(got) != want {
			t.Errorf("%s lists %d", query, len(got))
		}
	}
}

// A client that reads a resource, changes a word and writes it back has no secrets to send: they
// stay. With another kind of credentials they go.
func TestSecretsStay(t *testing.T) {
	x := open(t)
	store := func(kind string, secrets any) map[string]any {
		cred := map[string]any{"credentialsType": kind}
		if secrets != nil {
			cred["secrets"] = secrets
		}
		return props("datastoreType", "AzureBlob", "accountName", "a", "containerName", "c", "credentials", cred)
	}
	path := x.ws + "/datastores/far"
	key := map[string]any{"secretsType": "AccountKey", "key": "k1"}
	x.do("PUT", path, store("AccountKey", key)).want(201)
	for _, again := range []any{nil, map[string]any{"secretsType": "AccountKey"}, map[string]any{"secretsType": "AccountKey", "key": nil}, map[string]any{"key": ""}} {
		x.do("PUT", path, store("AccountKey", again)).want(200)
		x.do("POST", path+"/listSecrets", nil).want(200).is("key", "k1")
	}
	x.do("PUT", path, store("AccountKey", map[string]any{"secretsType": "AccountKey", "key": "k2"})).want(200)
	x.do("POST", path+"/listSecrets", nil).want(200).is("key", "k2")
	x.do("PUT", path, store("None", nil)).want(200)
	x.do("POST", path+"/listSecrets", nil).want(400).says("has no secrets")
	x.do("PUT", path, store("AccountKey", nil)).want(200)
	x.do("POST", path+"/listSecrets", nil).want(400).says("has no secrets")

	path = x.ws + "/connections/far"
	x.do("PUT", path, props("category", "Git", "authType", "PAT", "target", "t", "credentials", map[string]any{"pat": "p1"})).want(200)
	x.do("PUT", path, props("category", "Git", "authType", "PAT", "target", "t", "metadata", map[string]any{"a": "b"}, "credentials", nil)).want(200)
	x.do("POST", path+"/listsecrets", nil).want(200).is("properties.credentials.pat", "p1").is("properties.metadata.a", "b")
	x.do("PUT", path, props("category", "Git", "authType", "None", "target", "t2")).want(200)
	if a := x.do("POST", path+"/listsecrets", nil).want(200); a.at("properties.credentials") != nil {
		t.Errorf("credentials: %v", a.at("properties.credentials"))
	}
}

// azure-ai-ml asks where models are with a body that it cannot build itself; it is told of folders
// instead. For others the address of a model is called its path.
func TestModelOutputs(t *testing.T) {
	x := open(t)
	outputs := map[string]any{"m": map[string]any{"jobOutputType": "custom_model"}, "d": map[string]any{"jobOutputType": "uri_folder"}}
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", "outputs", outputs)).want(201)
	ask := map[string]any{"runId": "j"}
	x.do("POST", "/history/v1.0"+x.ws+"/rundata", ask, "User-Agent", "azure-ai-ml/1.35.2").want(200).is("runMetadata.outputs.m.type", "uri_folder")
	for agent, want := range map[string]string{"azure-ai-ml/1.35.2": "data", "azure-ai-ml/1.34.1": "data", "other": "modelregistry"} {
		a := x.do("POST", "/history/v1.0"+x.ws+"/rundata", ask, "User-Agent", agent).want(200)
		id, _ := a.at("runMetadata.outputs.m.assetId").(string)
		path := map[string]string{"data": "/data/v1.0" + x.ws + "/dataversion/batchGetResolvedUris", "modelregistry": "/modelregistry/v1.0" + x.ws + "/models/batchGetResolvedUris"}[want]
		values, _ := x.do("POST", path, map[string]any{"values": []string{id}}).want(200).at("values").(map[string]any)
		got, _ := values[id].(map[string]any)
		key := map[string]string{"data": "uri", "modelregistry": "path"}[want]
		if s, _ := got[key].(string); !strings.HasSuffix(s, "/paths/azureml/j/m/") {
			t.Errorf("%s: %v", agent, values)
		}
	}
	x.do("POST", "/history/v1.0"+x.ws+"/rundata", ask, "User-Agent", "azure-ai-ml/1.34.1").want(200).is("runMetadata.outputs.m.type", "UriFolder")
	x.do("POST", "/history/v1.0"+x.ws+"/rundata", ask, "User-Agent", "other").want(200).is("runMetadata.outputs.m.type", "CustomModel")
}

// An output is kept where something can be written, which is asked before the job runs, not after.
func TestOutputPlaces(t *testing.T) {
	x := open(t)
	for uri, ok := range map[string]bool{
		"": true, "azureml://datastores/workspaceblobstore/paths/x/${{name}}": true, "https://store/x?sig=y": true, "file:///data/x": true, "/data/x": true,
		"./x": false, "relative": false, "wasbs://c@a.blob.core.windows.net/x": false, "abfss://f@a.dfs.core.windows.net/x": false, "s3://b/x": false,
	} {
		out := map[string]any{"jobOutputType": "uri_folder", "uri": uri}
		a := x.do("PUT", x.ws+"/jobs/j"+berthVersion(uri), props("jobType", "Command", "command", "x", "outputs", map[string]any{"o": out}))
		if ok {
			a.want(201)
		} else {
			a.want(400).says("properties.outputs.o", uri, "azureml://datastores/")
		}
		out["mode"] = "Direct" // the command gets the address and does what it likes
		x.do("PUT", x.ws+"/jobs/d"+berthVersion(uri), props("jobType", "Command", "command", "x", "outputs", map[string]any{"o": out})).want(201)
	}
}

// Tags and properties are objects, or no client can read the job.
func TestJobMaps(t *testing.T) {
	x := open(t)
	for _, k := range []string{"tags", "properties"} {
		x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", k, []any{})).want(400).says(k, "object")
	}
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", "inputs", []any{})).want(400).says("inputs must be an object, not a list")
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", "outputs", map[string]any{"o": 5})).want(400).says("must be an object, not a number")
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", "resources", map[string]any{"instanceCount": "2"})).want(400).says("instanceCount must be a whole number, not a string")
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", "tags", nil, "properties", nil)).want(201)
	x.do("PUT", x.ws+"/jobs/j", props("tags", []any{})).want(400).says("tags", "object")
}

// Whatever a client sends, the lists of others stay readable.
func TestForms(t *testing.T) {
	x := open(t)
	for path, good := range map[string]string{
		"/environments/e/versions/1": `{"properties":{"image":"i","build":null,"tags":{},"isArchived":false}}`,
		"/data/e/versions/1":         `{"properties":{"dataType":"uri_file","dataUri":"https://x"}}`,
		"/models/e/versions/1":       `{"properties":{"modelUri":"https://x","flavors":{}}}`,
		"/components/e/versions/1":   `{"properties":{"componentSpec":{"type":"command","command":"x","inputs":{}}}}`,
		"/datastores/e":              `{"properties":{"datastoreType":"AzureBlob","accountName":"a","containerName":"c","credentials":{"credentialsType":"None"}}}`,
		"/connections/e":             `{"location":"x","properties":{"category":"Git","authType":"None","target":"t","metadata":{}}}`,
		"/computes/e":                `{"location":"x","tags":{},"properties":{"computeType":"AmlCompute","properties":{"vmSize":"Standard_DS3_v2","scaleSettings":{"maxNodeCount":1}}}}`,
	} {
		for old, bad := range map[string]string{
			`"image":"i"`: `"image":5`, `"build":null`: `"build":"x"`, `"tags":{}`: `"tags":[]`, `"isArchived":false`: `"isArchived":"yes"`,
			`"dataUri":"https://x"`: `"dataUri":"\u0000"`, `"flavors":{}`: `"flavors":"x"`, `"inputs":{}`: `"inputs":[]`, `"type":"command"`: `"type":1.5`,
			`{"type":"command","command":"x","inputs":{}}`: `"x"`, `"accountName":"a"`: `"accountName":{}`, `{"credentialsType":"None"}`: `"x"`,
			`"category":"Git"`: `"category":5`, `"metadata":{}`: `"metadata":"x"`, `"location":"x"`: `"location":[]`, `"target":"t"`: `"target":{}`,
		} {
			if body := strings.Replace(good, old, bad, 1); body != good {
				x.do("PUT", x.ws+path, body).want(400).says("must be")
			}
		}
		if a := x.do("PUT", x.ws+path, good); a.status >= 300 {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	for _, spec := range []any{nil, map[string]any{}, map[string]any{"type": nil}, map[string]any{"type": ""}} {
		x.do("PUT", x.ws+"/components/n/versions/1", props("componentSpec", spec)).want(400).says("properties.componentSpec")
	}
	x.do("PUT", x.ws+"/components/e/versions/1", props("isArchived", true)).want(200).is("properties.componentSpec.type", "command")
	for _, category := range []any{nil, ""} {
		x.do("PUT", x.ws+"/connections/n", props("category", category, "authType", "None")).want(400).says("properties.category")
	}
	x.do("PUT", x.ws, `{"location":5,"properties":{}}`).want(400).says("location must be a string")
}

// A job is held to the revision the client saw, as everything else is.
func TestJobRevisions(t *testing.T) {
	x := open(t)
	job := props("jobType", "Command", "command", "x")
	x.do("PUT", x.ws+"/jobs/j", job, "If-Match", `"5"`).want(412)
	seen := x.do("PUT", x.ws+"/jobs/j", job).want(201).header.Get("ETag")
	x.do("PUT", x.ws+"/jobs/j", job, "If-None-Match", "*").want(409).says("choose another name")
	x.do("PUT", x.ws+"/jobs/j", props("description", "one"), "If-Match", seen).want(200)
	x.do("PUT", x.ws+"/jobs/j", props("description", "two"), "If-Match", seen).want(412)
	x.do("GET", x.ws+"/jobs/j", nil).want(200).is("properties.description", "one")
	x.do("DELETE", x.ws+"/jobs/j", nil, "If-Match", seen).want(412)
	x.do("DELETE", x.ws+"/jobs/none", nil, "If-Match", seen).want(412)
	x.do("DELETE", x.ws+"/jobs/none", nil).want(204)
}
