package api_test

import "testing"

// An environment says where it comes from and which label it has, and shows its conda file as JSON.
func TestEnvironmentSays(t *testing.T) {
	x := open(t)
	path := x.ws + "/environments/e/versions/"
	conda := "# mine\nname: e\ndependencies:\n- python>=3.10\n- pip:\n  - a<2\n"
	shown := "{\n  \"dependencies\": [\n    \"python>=3.10\",\n    {\n      \"pip\": [\n        \"a<2\"\n      ]\n    }\n  ],\n  \"name\": \"e\"\n}"
	x.do("PUT", path+"1", props("image", "i", "condaFile", conda)).want(201).is("properties.condaFile", shown).
		is("properties.environmentType", "UserCreated").is("properties.osType", "Linux").is("properties.autoRebuild", "Disabled").is("properties.stage", "Development")
	label := func(version, want string) answer {
		t.Helper()
		a := x.do("GET", path+version, nil).want(200)
		got, _ := a.at("properties.properties").(map[string]any)
		if got["azureml.labels"] != want {
			t.Errorf("version %s has the labels %q, want %q", version, got["azureml.labels"], want)
		}
		return a
	}
	first := label("1", "latest").body
	x.do("PUT", path+"2", props("condaFile", "not: [yaml", "osType", "Windows")).want(201).is("properties.condaFile", "not: [yaml").is("properties.osType", "Windows")
	x.do("PUT", path+"1", first).want(200) // as clients do to archive it
	label("1", "")
	label("2", "latest")
	list := x.do("GET", x.ws+"/environments/e/versions", nil).want(200)
	for i, want := range []string{"latest", ""} {
		v, _ := list.at("value").([]any)[i].(map[string]any)["properties"].(map[string]any)["properties"].(map[string]any)
		if v["azureml.labels"] != want {
			t.Errorf("%d: %v", i, v)
		}
	}
	x.do("GET", x.ws+"/environments/e", nil).want(200).is("properties.description", "").is("properties.provisioningState", "Succeeded")

	nameless := x.do("PUT", x.ws+"/environments/CliV2AnonymousEnvironment/versions/abc", props("image", "i", "isAnonymous", true)).want(201).is("properties.stage", "Logged")
	if got, _ := nameless.at("properties.properties").(map[string]any); got["azureml.labels"] != "" {
		t.Errorf("one without a name has %v", got)
	}
}

// A version of an environment is what it was made as; what is said about it may change. Clients
// count on the refusal to make the next version.
func TestEnvironmentIsFixed(t *testing.T) {
	x := open(t)
	path := x.ws + "/environments/e/versions/1"
	conda := "name: e\ndependencies:\n- python\n"
	x.do("PUT", path, props("image", "i", "condaFile", conda, "description", "old")).want(201)
	for _, other := range []map[string]any{
		props("image", "j", "condaFile", conda), props("image", "i"), props("image", "i", "condaFile", "name: f"),
		props("image", "i", "condaFile", conda, "osType", "Windows"),
		props("image", "i", "condaFile", conda, "inferenceConfig", map[string]any{"scoringRoute": map[string]any{"port": 1, "path": "/"}}),
	} {
		x.do("PUT", path, other).want(409).is("error.code", "UserError")
	}
	x.do("PUT", path, props("image", "i", "condaFile", "# said otherwise\n"+conda, "description", "new", "tags", map[string]any{"a": "b"}, "inferenceConfig", nil)).want(200).
		is("properties.description", "new").is("properties.tags.a", "b")
	x.do("PUT", path, x.do("GET", path, nil).want(200).body).want(200)

	built := x.ws + "/environments/b/versions/1"
	x.do("PUT", built, props("build", map[string]any{"contextUri": "azureml://datastores/workspaceblobstore/paths/ctx/"})).want(201)
	x.do("PUT", built, props("build", map[string]any{"contextUri": "azureml://datastores/workspaceblobstore/paths/ctx", "dockerfilePath": "Dockerfile"})).want(200)
	x.do("PUT", built, x.do("GET", built, nil).want(200).body).want(200)
	x.do("PUT", built, props("build", map[string]any{"contextUri": "azureml://datastores/workspaceblobstore/paths/other/"})).want(409)

	// The same files are the same folder, wherever they were uploaded to.
	box := x.do("GET", x.ws+"/datastores/workspaceblobstore", nil).want(200).at("properties.containerName").(string)
	sas := x.do("POST", x.ws+"/datastores/workspaceblobstore/listSecrets", nil).want(200).at("sasToken").(string)
	folder := func(name, file, text string) map[string]any {
		t.Helper()
		x.as("", "PUT", "/st.blob.berth/"+box+"/up/"+name+"/"+file+sas, text, "x-ms-blob-type", "BlockBlob").want(201)
		return props("build", map[string]any{"contextUri": "https://127.0.0.1:8443/st.blob.berth/" + box + "/up/" + name + "/"})
	}
	ctx := x.ws + "/environments/c/versions/1"
	x.do("PUT", ctx, folder("one", "Dockerfile", "FROM a")).want(201)
	x.do("PUT", ctx, folder("two", "Dockerfile", "FROM a")).want(200).is("properties.build.contextUri", "https://127.0.0.1:8443/st.blob.berth/"+box+"/up/one/")
	x.do("PUT", ctx, folder("two", "more.txt", "x")).want(409)
	x.do("PUT", ctx, folder("three", "Dockerfile", "FROM b")).want(409)
	x.do("PUT", ctx, folder("four", "Other", "FROM a")).want(409)

	nameless := x.ws + "/environments/CliV2AnonymousEnvironment/versions/h"
	x.do("PUT", nameless, props("image", "i", "isAnonymous", true)).want(201)
	x.do("PUT", nameless, props("image", "j", "isAnonymous", true)).want(200)

	// So are those of a model without a name.
	model := func(name, file, text, uri string) map[string]any {
		t.Helper()
		folder(name, file, text)
		return props("isAnonymous", true, "modelUri", "azureml://datastores/workspaceblobstore/paths/up/"+uri)
	}
	at := x.ws + "/models/0123abcd/versions/1"
	x.do("PUT", at, model("m1", "w.pkl", "1", "m1")).want(201)
	x.do("PUT", at, model("m2", "w.pkl", "1", "m2")).want(200).is("properties.modelUri", x.do("GET", at, nil).want(200).at("properties.modelUri"))
	x.do("PUT", at, model("m3", "w.pkl", "2", "m3")).want(409)
	file := x.ws + "/models/0123abce/versions/1"
	x.do("PUT", file, model("m1", "w.pkl", "1", "m1/w.pkl")).want(201)
	x.do("PUT", file, model("m2", "w.pkl", "1", "m2/w.pkl")).want(200)
	x.do("PUT", file, model("m4", "v.pkl", "1", "m4/v.pkl")).want(409)
	x.do("PUT", x.ws+"/models/named/versions/1", props("modelUri", "azureml://datastores/workspaceblobstore/paths/up/m1")).want(201)
	x.do("PUT", x.ws+"/models/named/versions/1", props("modelUri", "azureml://datastores/workspaceblobstore/paths/up/m2")).want(409)
}
