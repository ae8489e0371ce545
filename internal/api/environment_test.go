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
