package api_test

import (
	"bytes"
	"net/http"
	"testing"
)

// TestJobNamesDataThatIsNotThere: a job whose input is an asset that is not there is refused when
// it is submitted, however the asset is named, with the name that was probably meant.
func TestJobNamesDataThatIsNotThere(t *testing.T) {
	x := open(t)
	for _, v := range []string{"1", "2"} {
		x.do("PUT", x.ws+"/data/prices/versions/"+v, props("dataType", "uri_folder", "dataUri", "azureml://datastores/workspaceblobstore/paths/prices")).want(http.StatusCreated)
	}
	x.do("PUT", x.ws+"/models/net/versions/1", props("modelType", "custom_model", "modelUri", "azureml://datastores/workspaceblobstore/paths/net")).want(http.StatusCreated)
	job := func(kind, uri string) map[string]any {
		in := map[string]any{"jobInputType": kind, "uri": uri}
		return props("jobType", "Command", "command", "ls ${{inputs.d}}", "inputs", map[string]any{"d": in})
	}
	for _, tt := range []struct{ kind, uri, says string }{
		{"uri_folder", x.ws + "/data/price/versions/1", "properties.inputs.d: there is no data price:1 in this workspace; did you mean prices?"},
		{"uri_folder", "azureml:" + x.ws + "/data/price/versions/1", "there is no data price:1 in this workspace; did you mean prices?"},
		{"uri_folder", x.ws + "/data/prices/versions/3", "there is no data prices:3 in this workspace; its newest version is 2;"},
		{"uri_folder", "azureml:prices:3", "there is no data prices:3 in this workspace; its newest version is 2;"},
		{"uri_folder", x.ws + "/data/price/labels/latest", "there is no data price in this workspace; did you mean prices?"},
		{"uri_folder", x.ws + "/data/nothingatall/versions/1", "there is no data nothingatall:1 in this workspace; `berth data list` shows what there is"},
		{"custom_model", x.ws + "/models/nets/versions/1", "there is no model nets:1 in this workspace; did you mean net?"},
		{"uri_folder", "azureml://registries/r/data/prices/versions/1", "this server has none"},
	} {
		x.do("PUT", x.ws+"/jobs/wrong", job(tt.kind, tt.uri)).want(http.StatusBadRequest).says(tt.says)
	}
	for i, uri := range []string{x.ws + "/data/prices/versions/1", x.ws + "/data/prices/labels/latest", "azureml:prices:2"} {
		x.do("PUT", x.ws+"/jobs/right"+string(rune('a'+i)), job("uri_folder", uri)).want(http.StatusCreated)
	}
}

// TestStepNamesDataOfAnother: what a step of a pipeline will register may be named by the others.
func TestStepNamesDataOfAnother(t *testing.T) {
	x := open(t)
	x.do("PUT", x.ws+"/environments/e/versions/1", props("image", "x")).want(http.StatusCreated)
	made := map[string]any{"type": "command", "command": "make", "environment": "azureml:e:1", "outputs": map[string]any{"o": map[string]any{"type": "uri_folder"}}}
	uses := map[string]any{"type": "command", "command": "ls ${{inputs.i}}", "environment": "azureml:e:1", "inputs": map[string]any{"i": map[string]any{"type": "uri_folder"}}}
	x.do("PUT", x.ws+"/components/maker/versions/1", props("componentSpec", made)).want(http.StatusCreated)
	x.do("PUT", x.ws+"/components/user/versions/1", props("componentSpec", uses)).want(http.StatusCreated)
	pipe := func(version, uri string) map[string]any {
		out := map[string]any{"job_output_type": "uri_folder", "name": "set"}
		if version != "" {
			out["version"] = version
		}
		return props("jobType", "Pipeline", "jobs", map[string]any{
			"make": map[string]any{"type": "command", "componentId": "azureml:maker:1", "computeId": "local", "outputs": map[string]any{"o": out}},
			"use": map[string]any{
				"type": "command", "componentId": "azureml:user:1", "computeId": "local",
				"inputs": map[string]any{"i": map[string]any{"job_input_type": "uri_folder", "uri": uri}},
			},
		})
	}
	x.do("PUT", x.ws+"/jobs/wrong", pipe("7", x.ws+"/data/set/versions/8")).want(http.StatusBadRequest).says("step use: properties.inputs.i: there is no data set:8")
	x.do("PUT", x.ws+"/jobs/wrong", pipe("7", x.ws+"/data/sets/versions/7")).want(http.StatusBadRequest).says("there is no data sets:7")
	x.do("PUT", x.ws+"/jobs/right", pipe("7", x.ws+"/data/set/versions/7")).want(http.StatusCreated)
	x.do("PUT", x.ws+"/jobs/newest", pipe("", x.ws+"/data/Set/labels/latest")).want(http.StatusCreated)
}

// TestFolderAtAnAddress: the files of a folder cannot be listed at an address that is not one of
// blob storage, so such an input is refused when the job is submitted.
func TestFolderAtAnAddress(t *testing.T) {
	x := open(t)
	job := func(kind, uri, mode string) map[string]any {
		in := map[string]any{"jobInputType": kind, "uri": uri, "mode": mode}
		return props("jobType", "Command", "command", "ls ${{inputs.d}}", "inputs", map[string]any{"d": in})
	}
	for _, uri := range []string{"https://far.example/x", "https://far.example/", "https://far.example/x/?sig=b"} {
		for _, kind := range []string{"uri_folder", "mltable", "mlflow_model"} {
			a := x.do("PUT", x.ws+"/jobs/wrong", job(kind, uri, "ReadOnlyMount")).want(http.StatusBadRequest).
				says("properties.inputs.d: https://far.example/", "is not a folder in blob storage", "uri_file", "datastore")
			if bytes.Contains(a.raw, []byte("sig=")) {
				t.Errorf("the signature is shown: %s", a.raw)
			}
		}
	}
	for i, in := range [][3]string{
		{"uri_file", "https://far.example/x", "ReadOnlyMount"},
		{"uri_folder", "https://far.example/x", "Direct"},
		{"uri_folder", "https://far.example/account/container", "ReadOnlyMount"},
		{"uri_folder", "https://account.blob.core.windows.net/container?sig=x", "ReadOnlyMount"},
	} {
		x.do("PUT", x.ws+"/jobs/right"+string(rune('a'+i)), job(in[0], in[1], in[2])).want(http.StatusCreated)
	}
}

// TestJobNamesDeletedExperiment: nobody would see its run, so it is refused, as is its plan, with
// the command that brings the experiment back.
func TestJobNamesDeletedExperiment(t *testing.T) {
	x := open(t)
	mlflow := "/mlflow/v1.0" + workspace.ID() + "/api/2.0/mlflow/"
	call := func(path string, body map[string]any) answer {
		t.Helper()
		return x.as(x.admin, "POST", mlflow+path, body, "Content-Type", "application/json").want(http.StatusOK)
	}
	ids := map[string]any{"Default": "0"}
	for _, name := range []string{"iris", "two words"} {
		ids[name] = call("experiments/create", map[string]any{"name": name}).at("experiment_id")
	}
	job := func(experiment string) map[string]any {
		p := map[string]any{"jobType": "Command", "command": "true"}
		if experiment != "" {
			p["experimentName"] = experiment
		}
		return map[string]any{"properties": p}
	}
	for name, id := range ids {
		call("experiments/delete", map[string]any{"experiment_id": id})
		arg := name
		if name == "two words" {
			arg = id.(string)
		}
		says := "experiment " + name + " was deleted; `berth runs experiments restore " + arg + "` brings it"
		x.do("PUT", x.ws+"/jobs/a", job(name)).want(http.StatusBadRequest).says(says)
		x.do("POST", x.ws+"/jobs/a/plan", job(name)).want(http.StatusBadRequest).says(says)
	}
	x.do("PUT", x.ws+"/jobs/a", job("")).want(http.StatusBadRequest).says("restore Default")
	x.do("PUT", x.ws+"/jobs/a", job("Iris")).want(http.StatusCreated) // names differ by case
	for name, id := range ids {
		call("experiments/restore", map[string]any{"experiment_id": id})
		x.do("PUT", x.ws+"/jobs/of"+id.(string), job(name)).want(http.StatusCreated)
	}
	call("experiments/delete", map[string]any{"experiment_id": ids["iris"]})
	edit := job("iris")
	edit["properties"].(map[string]any)["description"] = "still there"
	x.do("PUT", x.ws+"/jobs/of"+ids["iris"].(string), edit).want(http.StatusOK) // it is there
}
