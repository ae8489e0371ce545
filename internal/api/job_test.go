package api_test

import "testing"

// A job that was made says where it is, on how many machines it runs, and has a member for all that
// nobody said of it.
func TestJobSays(t *testing.T) {
	x := open(t)
	path := x.ws + "/jobs/j?api-version=2025-01-01-preview"
	body := props("jobType", "Command", "command", "x", "parentJobName", "p")
	a := x.do("PUT", path, body).want(201).is("properties.resources.instanceCount", 1).is("properties.parentJobName", "p")
	if where := a.header.Get("Location"); where != "https://127.0.0.1:8443"+path {
		t.Errorf("it was made at %q", where)
	}
	if where := x.do("PUT", path, body).want(200).header.Get("Location"); where != "" {
		t.Errorf("it was made again at %q", where)
	}
	got, _ := x.do("GET", path, nil).want(200).at("properties").(map[string]any)
	for _, k := range []string{"description", "computeId", "componentId", "identity", "notificationSetting", "codeId", "distribution", "limits"} {
		if v, ok := got[k]; !ok || v != nil {
			t.Errorf("%s is %v, %v", k, v, ok)
		}
	}
	x.do("PUT", x.ws+"/jobs/k", props("jobType", "Command", "command", "x", "resources", map[string]any{"shmSize": "1g"})).want(201).
		is("properties.resources.instanceCount", 1).is("properties.resources.shmSize", "1g")
	copied := map[string]any{"azureml.runsource": "azureml.StepRun", "azureml.pipelinerunid": "p", "mine": "x"}
	left, _ := x.do("PUT", x.ws+"/jobs/l", props("jobType", "Command", "command", "x", "properties", copied)).want(201).at("properties.properties").(map[string]any)
	if len(left) != 1 || left["mine"] != "x" {
		t.Errorf("a job that was copied from a step says %v", left)
	}
	x.do("GET", "/history/v1.0"+x.ws+"/runs/j", nil).want(200).is("rootRunId", "j").is("parentRunId", nil).is("dataContainerId", "dcid.j")
}
