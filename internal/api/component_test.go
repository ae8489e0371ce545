package api_test

import "testing"

// What a component is made of is shown in words, and who wrote it is not shown at all; what it runs
// is not touched by that.
func TestComponentInWords(t *testing.T) {
	x := open(t)
	path := x.ws + "/components/fork/versions/1"
	spec := map[string]any{
		"type": "parallel", "_source": "YAML.COMPONENT", "is_deterministic": true, "error_threshold": 10, "resources": map[string]any{"instance_count": 2},
		"retry_settings": map[string]any{"timeout": 3}, "inputs": map[string]any{"a": map[string]any{"type": "uri_file", "optional": false}},
		"task": map[string]any{"environment": "azureml:AzureML-tools@latest"},
	}
	for _, a := range []answer{
		x.do("PUT", path, props("componentSpec", spec)).want(201),
		x.do("GET", path, nil).want(200),
		x.do("PUT", path, props("componentSpec", spec, "tags", map[string]any{"n": 1, "yes": true, "none": nil})).want(200).
			is("properties.tags.n", "1").is("properties.tags.yes", "True").is("properties.tags.none", nil),
	} {
		got, _ := a.at("properties.componentSpec").(map[string]any)
		if _, ok := got["_source"]; ok || got["is_deterministic"] != "True" || got["error_threshold"] != "10" || got["resources"] != nil {
			t.Errorf("%v", got)
		}
		a.is("properties.componentSpec.retry_settings.timeout", "3").is("properties.componentSpec.inputs.a.optional", "False").
			is("properties.componentSpec.task.environment", "azureml://registries/azureml/environments/AzureML-tools/versions/1").
			is("properties.stage", "Development")
	}
	x.do("PUT", path, props("isArchived", true)).want(200).is("properties.stage", "Archived")
	x.do("PUT", path, props("isArchived", false, "stage", "Archived")).want(200).is("properties.stage", "Development")

	x.do("PUT", x.ws+"/components/azureml_anonymous/versions/ab", props("isAnonymous", true, "componentSpec", spec)).want(201).is("properties.stage", "Logged")

	// A pipeline's steps are for reading back.
	pipe := map[string]any{"type": "pipeline", "jobs": map[string]any{"a": map[string]any{"type": "command", "componentId": path, "limits": map[string]any{"n": 1}}}}
	x.do("PUT", x.ws+"/components/p/versions/1", props("componentSpec", pipe)).want(201).is("properties.componentSpec.is_deterministic", "False")
	if n := x.do("GET", x.ws+"/components/p/versions/1", nil).at("properties.componentSpec.jobs.a.limits.n"); n != 1.0 {
		t.Errorf("%T %v", n, n)
	}
	x.do("GET", x.ws+"/components/p", nil).want(200).is("properties.description", "").is("properties.provisioningState", "Succeeded")
}

// Maps of strings hold strings, whatever a client put there: typed clients read nothing else.
func TestMapsOfStrings(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/codes/k/versions/1", `{"properties":{"codeUri":"https://x/y","properties":{"hash_sha256":"ab","hash_version":202208}}}`).want(201)
	x.do("PUT", x.ws+"/jobs/j", `{"properties":{"jobType":"Command","command":"x","environmentVariables":{"N":1.50,"ON":true},"tags":{"n":7}}}`).want(201)
	for path, values := range map[string]map[string]any{
		"/codes/k/versions/1": {"properties.hash_version": "202208"},
		"/jobs/j":             {"environmentVariables.N": "1.50", "environmentVariables.ON": "True", "tags.n": "7"},
	} {
		a := x.do("GET", x.ws+path, nil).want(200)
		for k, want := range values {
			if got := a.at("properties." + k); got != want {
				t.Errorf("%s: %s is %T %v", path, k, got, got)
			}
		}
	}
	x.do("GET", x.ws+"/codes/other/versions?hash=ab&hashVersion=202208", nil).want(200).is("value.0.name", "1")
}
