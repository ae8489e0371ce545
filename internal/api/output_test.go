package api_test

import (
	"strings"
	"testing"
)

// TestAssetOfAnOutput: an asset made of a job's output says where the bytes are, wherever the job
// put them, and outlives the job.
func TestAssetOfAnOutput(t *testing.T) {
	x := open(t)
	at := func(path string) map[string]any {
		return map[string]any{"jobOutputType": "uri_folder", "uri": "azureml://datastores/workspaceblobstore/paths/" + path}
	}
	outputs := map[string]any{"file": map[string]any{"jobOutputType": "uri_file"}, "o": map[string]any{"jobOutputType": "uri_folder"}, "own": at("mine/${{name}}/${{output_name}}.txt")}
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", "outputs", outputs)).want(201)
	long := "azureml://subscriptions/sub/resourcegroups/Group/workspaces/lab/datastores/"
	for uri, want := range map[string]string{
		"azureml://jobs/j/outputs/o":                      long + "workspaceblobstore/paths/azureml/j/o/",
		"azureml://jobs/j/outputs/o/paths/deep/d.txt":     long + "workspaceblobstore/paths/azureml/j/o/deep/d.txt",
		"azureml://jobs/j/outputs/file":                   long + "workspaceblobstore/paths/azureml/j/file",
		"azureml://jobs/j/outputs/own":                    long + "workspaceblobstore/paths/mine/j/own.txt",
		"azureml://jobs/j/outputs/artifacts/paths/net":    long + "workspaceartifactstore/paths/ExperimentRun/dcid.j/net",
		"azureml://datastores/workspaceblobstore/paths/x": long + "workspaceblobstore/paths/x",
		"https://elsewhere/x":                             "https://elsewhere/x",
		"runs:/j/net/weights":                             long + "workspaceartifactstore/paths/ExperimentRun/dcid.j/net/weights",
	} {
		want = strings.Replace(want, "/resourcegroups/", "/resourceGroups/", 1) // which is how models have it
		name := "/models/m/versions/" + berthVersion(uri)
		x.do("PUT", x.ws+name, props("modelUri", uri)).want(201).is("properties.modelUri", want)
		x.do("PUT", x.ws+name, props("modelUri", uri, "description", "again")).want(200).is("properties.modelUri", want)
	}
	for uri, words := range map[string]string{
		"azureml://jobs/j/outputs/o/d.txt": "outputs/o/paths/d.txt",
		"azureml://jobs/j/outputs/none":    "has no output none",
		"runs:/none/net":                   "no job none",
	} {
		x.do("PUT", x.ws+"/models/m/versions/8", props("modelUri", uri)).want(400).says("properties.modelUri", words)
	}
	x.do("PUT", x.ws+"/models/mine/versions/1", props("modelUri", "azureml://jobs/j/outputs/o/")).want(201).is("properties.jobName", "j")
	x.do("PUT", x.ws+"/models/mine/versions/2", props("modelUri", "runs:/j/net", "jobName", "other")).want(201).is("properties.jobName", "other")
	x.do("PUT", x.ws+"/models/mine/versions/3", props("modelUri", "https://elsewhere/x")).want(201).is("properties.jobName", nil)
	x.do("PUT", x.ws+"/data/d/versions/1", props("dataType", "uri_file", "dataUri", "azureml://jobs/j/outputs/own")).want(201).
		is("properties.dataUri", long+"workspaceblobstore/paths/mine/j/own.txt")
	x.do("PUT", x.ws+"/models/m/versions/9", props("modelUri", "azureml://jobs/none/outputs/o")).want(400).says("properties.modelUri", "no job none")
	x.do("PUT", x.ws+"/models/m/versions/9", props("modelUri", "azureml://jobs/j/outputs/o/paths/../../x")).want(400).says("..")

	id := "azureml://locations/l/workspaces/lab/data/azureml_j_output_data_own/versions/1"
	a := x.do("POST", "/data/v1.0"+x.ws+"/dataversion/batchGetResolvedUris", map[string]any{"values": []string{id}}).want(200)
	values, _ := a.at("values").(map[string]any)
	if got, _ := values[id].(map[string]any); got["uri"] != "azureml://datastores/workspaceblobstore/paths/mine/j/own.txt" {
		t.Errorf("resolved: %v", values)
	}
}

// TestOutputOfOneFile: the address of a file has no slash at its end, or clients look for what lies
// below it.
func TestOutputOfOneFile(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/jobs/j", props("jobType", "Command", "command", "x", "outputs", map[string]any{"f": map[string]any{"jobOutputType": "uri_file"}})).want(201)
	id := "azureml://locations/l/workspaces/lab/data/azureml_j_output_data_f/versions/1"
	values, _ := x.do("POST", "/data/v1.0"+x.ws+"/dataversion/batchGetResolvedUris", map[string]any{"values": []string{id}}).want(200).at("values").(map[string]any)
	got, _ := values[id].(map[string]any)
	if uri, _ := got["uri"].(string); !strings.HasSuffix(uri, "/paths/azureml/j/f") || got["type"] != "UriFile" {
		t.Errorf("resolved: %v", values)
	}
}

// berthVersion makes a version of any text.
func berthVersion(text string) (v string) {
	for _, r := range text {
		if r >= 'a' && r <= 'z' {
			v += string(r)
		}
	}
	return v
}
