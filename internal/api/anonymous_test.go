package api_test

import "testing"

// TestAnonymous: what a client keeps under its name for the nameless is there by its version, and
// in no list of names.
func TestAnonymous(t *testing.T) {
	x := open(t)
	spec := map[string]any{"type": "command", "command": "true", "name": "azureml_anonymous", "version": "abc"}
	nameless := map[string]any{"properties": map[string]any{"isAnonymous": true, "componentSpec": spec}}
	x.do("PUT", x.ws+"/components/azureml_anonymous/versions/abc", nameless).want(201)
	x.do("PUT", x.ws+"/components/mine/versions/1", map[string]any{"properties": map[string]any{"componentSpec": spec}}).want(201)
	x.do("GET", x.ws+"/components", nil).want(200).is("value.0.name", "mine").is("value.1", nil)
	x.do("GET", x.ws+"/components/azureml_anonymous/versions/abc", nil).want(200)
	x.do("GET", x.ws+"/components/azureml_anonymous/versions", nil).want(200).is("value.0.name", "abc")
	x.do("PUT", x.ws+"/environments/CliV2AnonymousEnvironment/versions/h", map[string]any{"properties": map[string]any{"isAnonymous": true, "image": "i"}}).want(201)
	x.do("GET", x.ws+"/environments", nil).want(200).is("value.0", nil)
}

// TestServiceInstances: a job here has no services of its own, and says so instead of not being
// there.
func TestServiceInstances(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "true")).want(201)
	got := x.do("GET", "/history/v1.0"+x.ws+"/runs/j/serviceinstances/0", nil).want(200).at("instances").(map[string]any)
	if len(got) != 0 {
		t.Errorf("%v", got)
	}
	x.do("GET", "/history/v1.0"+x.ws+"/runs/nothing/serviceinstances/0", nil).want(404)
}
