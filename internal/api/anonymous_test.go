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

// TestServiceInstances: a job that asks for no services has none, and says so instead of not being
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

// TestServicesRefused: services that cannot be started or reached are refused when a job is sent,
// with what to do; what Azure's clients send back of every job is not.
func TestServicesRefused(t *testing.T) {
	x := open(t)
	put := func(name string, service any, more ...any) answer {
		p := append([]any{"jobType", "Command", "command", "x", "services", map[string]any{"s": service, "Studio": map[string]any{"jobServiceType": "Studio", "endpoint": "https://x"}}}, more...)
		return x.do("PUT", x.ws+"/jobs/"+name, props(p...))
	}
	put("a", map[string]any{"jobServiceType": "JupyterLab", "status": "Running", "endpoint": "https://elsewhere", "errorMessage": "x"}).want(201).
		is("properties.services.s.status", "Starting").is("properties.services.s.endpoint", nil).is("properties.services.s.errorMessage", nil)
	x.do("GET", "/history/v1.0"+x.ws+"/runs/a/serviceinstances/0", nil).want(200).is("instances.s.type", "JupyterLab").is("instances.s.status", "Starting").is("instances.Studio", nil)
	x.do("GET", "/history/v1.0"+x.ws+"/runs/a/serviceinstances/1", nil).want(200).is("instances.s", nil)
	put("b", map[string]any{"jobServiceType": "RayDashboard"}).want(400).says("properties.services.s", "ssh, jupyter_lab, tensor_board or vs_code")
	put("b", map[string]any{"port": 5000}).want(400).says("properties.services.s: it has no type")
	put("b", map[string]any{"jobServiceType": "SSH", "port": 22}).want(400).says("between 1024 and 65535")
	put("b", map[string]any{"jobServiceType": "SSH", "nodes": map[string]any{"nodesValueType": "All"}}, "resources", map[string]any{"instanceCount": 2}).want(400)
	put("b", 5).want(400)
	pipeline := props("jobType", "Pipeline", "jobs", map[string]any{}, "services", map[string]any{"s": map[string]any{"jobServiceType": "SSH"}})
	x.do("PUT", x.ws+"/jobs/p", pipeline).want(400).says("a job of type Pipeline has no services; give them to a command")
	x.do("POST", x.ws+"/jobs/a/open", map[string]any{"service": "s"}).want(409).says("its services can be opened while it is running")
}
