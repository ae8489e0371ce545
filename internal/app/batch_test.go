package app_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// batchServer is a server with a batch endpoint e, whose deployment one scores with a script.
type batchServer struct {
	*scoring
	remote *http.Client
	uri    string
	key    string
	more   map[string]any // of invocations
}

func newBatch(t *testing.T) *batchServer {
	t.Helper()
	b := &batchServer{scoring: newScoring(t, start(t, shortHome(t)), counting), remote: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	b.put("/batchEndpoints/e", map[string]any{"authMode": "Key"})
	b.put("/batchEndpoints/e/deployments/one", b.deployment(nil))
	_, m := b.do("GET", b.ws+"/batchEndpoints/e", nil)
	b.uri, _ = m["properties"].(map[string]any)["scoringUri"].(string)
	_, m = b.do("POST", b.ws+"/batchEndpoints/e/listKeys", map[string]any{})
	b.key, _ = m["primaryKey"].(string)
	if b.uri == "" || b.key == "" {
		t.Fatalf("scoring URI %q, keys %v", b.uri, m)
	}
	return b
}

func (b *batchServer) deployment(more map[string]any) map[string]any {
	p := map[string]any{
		"compute": b.ws + "/computes/local", "codeConfiguration": map[string]any{"codeId": b.codeID, "scoringScript": "score.py"}, "miniBatchSize": 2,
		"environmentVariables": map[string]any{"LEDGER": b.ledger}, "retrySettings": map[string]any{"maxRetries": 1, "timeout": "PT20S"},
	}
	for k, v := range more {
		p[k] = v
	}
	return p
}

func (b *batchServer) put(path string, props map[string]any) {
	b.t.Helper()
	if code, m := b.do("PUT", b.ws+path, map[string]any{"location": "local", "properties": props}); code/100 != 2 {
		b.t.Fatal(code, m)
	}
}

// invoke calls the endpoint as a client elsewhere does.
func (b *batchServer) invoke(inputs map[string]any, headers ...string) (int, map[string]any) {
	b.t.Helper()
	props := map[string]any{"inputData": inputs}
	maps.Copy(props, b.more)
	body, err := json.Marshal(map[string]any{"properties": props})
	if err != nil {
		b.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.uri, bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+b.key)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.remote.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(raw, &m); err != nil {
		b.t.Fatalf("%d %s", resp.StatusCode, raw)
	}
	return resp.StatusCode, m
}

// TestInvocationHidesSignatures: the job of an invocation does not show the signature of its input.
func TestInvocationHidesSignatures(t *testing.T) {
	b := newBatch(t)
	in := map[string]any{"UriFolder": map[string]any{"jobInputType": "UriFolder", "uri": "https://127.0.0.1:1/account/box/in?sig=hunter2"}}
	code, m := b.invoke(in, "azureml-model-deployment", "one")
	name, _ := m["name"].(string)
	if code != http.StatusCreated || name == "" {
		t.Fatal(code, m)
	}
	_, shown := b.do("GET", b.ws+"/jobs/"+name, nil)
	for _, m := range []map[string]any{m, shown} {
		raw, _ := json.Marshal(m)
		if strings.Contains(string(raw), "hunter2") || !strings.Contains(string(raw), "box/in?sig=berth-sealed.") {
			t.Errorf("%s", raw)
		}
	}
}

func TestBatchEndpoint(t *testing.T) {
	b := newBatch(t)
	b.files("1", "2", "3")
	data := b.ws + "/data/files/versions/1"
	if code, m := b.do("PUT", data, map[string]any{"properties": map[string]any{"dataType": "uri_folder", "dataUri": "file://" + b.input}}); code != 201 {
		t.Fatal(code, m)
	}
	folder := map[string]any{"UriFolder": map[string]any{"jobInputType": "UriFolder", "uri": data}}
	says := func(code int, m map[string]any, want int, text string) {
		t.Helper()
		raw, _ := json.Marshal(m)
		if code != want || !strings.Contains(string(raw), text) {
			t.Errorf("%d %s, want %d that says %q", code, raw, want, text)
		}
	}
	code, m := b.invoke(folder)
	says(code, m, 400, "has no default deployment")
	code, m = b.invoke(folder, "azureml-model-deployment", "other")
	says(code, m, 404, "has no deployment other")
	b.put("/batchEndpoints/e", map[string]any{"authMode": "Key", "defaults": map[string]any{"deploymentName": "one"}})
	code, m = b.invoke(folder, "Authorization", "Bearer wrong")
	says(code, m, 401, "")
	code, m = b.invoke(map[string]any{"a": folder["UriFolder"], "b": folder["UriFolder"]})
	says(code, m, 400, "takes exactly one")
	code, m = b.invoke(map[string]any{"a": map[string]any{"jobInputType": "Literal", "value": 3}})
	says(code, m, 400, "takes a file or a folder")
	code, m = b.invoke(map[string]any{"a": map[string]any{"jobInputType": "UriFolder", "uri": b.ws + "/data/none/versions/1"}})
	says(code, m, 400, "none")

	code, m = b.invoke(folder, "repeatability_request-id", "r1")
	says(code, m, 201, "azureml.batchrun")
	name, _ := m["name"].(string)
	if code, again := b.invoke(folder, "repeatability_request-id", "r1"); code != 201 || again["name"] != name {
		t.Errorf("the request that was sent again made job %v, not %s (%d)", again["name"], name, code)
	}
	if code, other := b.invoke(folder, "repeatability_request-id", "r2", "azureml-model-deployment", "one"); code != 201 || other["name"] == name {
		t.Errorf("another request got job %v (%d)", other["name"], code)
	} else if status, st := b.end(other["name"].(string)); status != "Completed" {
		t.Errorf("%s: %s", status, st.Reason)
	}
	status, st := b.end(name)
	if status != "Completed" {
		log, _ := b.wait(name + "_batchscoring")
		t.Fatalf("%s: %s\n%s", status, st.Reason, log)
	}
	_, child := b.state(name + "_batchscoring")
	if child.Work == nil || child.Work.Batches != 2 || child.Work.Done != 2 {
		t.Errorf("the progress of the step: %+v", child.Work)
	}
	if n := b.scored(); n["f000.txt"] != 2 || n["f002.txt"] != 2 { // two invocations
		t.Errorf("scored %v", n)
	}
	for _, path := range []string{"/mferp/managementfrontend" + b.ws + "/batchEndpoints/e/jobs", b.uri[strings.Index(b.uri, "/berth/"):]} {
		_, list := b.do("GET", path, nil)
		if v, _ := list["value"].([]any); len(v) != 2 {
			t.Errorf("jobs of the endpoint: %v", list)
		}
	}
}

// TestBatchDeploymentRefused: what could never run is refused when it is deployed.
func TestBatchDeploymentRefused(t *testing.T) {
	b := newBatch(t)
	for text, more := range map[string]map[string]any{
		"miniBatchSize must be a whole number":      {"miniBatchSize": 0},
		"codeConfiguration is missing":              {"codeConfiguration": nil},
		"below the code":                            {"codeConfiguration": map[string]any{"codeId": b.codeID, "scoringScript": "../score.py"}},
		"is not AppendRow or SummaryOnly":           {"outputAction": "Print"},
		"properties.model":                          {"model": map[string]any{"referenceType": "Id", "assetId": b.ws + "/models/none/versions/1"}},
		"properties.compute":                        {"compute": b.ws + "/computes/none"},
		"output_file_name must be the name":         {"outputFileName": "../x"},
		"must be the id of a pipeline component":    {"deploymentConfiguration": map[string]any{"deploymentConfigurationType": "PipelineComponent"}},
		"deploymentConfiguration.componentId":       {"deploymentConfiguration": map[string]any{"deploymentConfigurationType": "PipelineComponent", "componentId": map[string]any{"assetId": b.ws + "/components/none/versions/1"}}},
		"instanceCount must be from 1":              {"resources": map[string]any{"instanceCount": 0}},
		"timeout must be a number of seconds up":    {"retrySettings": map[string]any{"timeout": "PT0S"}},
		"maxConcurrencyPerInstance must be a whole": {"maxConcurrencyPerInstance": 100000},
	} {
		code, m := b.do("PUT", b.ws+"/batchEndpoints/e/deployments/bad", map[string]any{"location": "local", "properties": b.deployment(more)})
		raw, _ := json.Marshal(m)
		if code/100 != 4 || !strings.Contains(string(raw), text) {
			t.Errorf("%s: %d %s", text, code, raw)
		}
	}
}

// TestBatchPipelineComponent: a pipeline component that is deployed takes values and folders.
func TestBatchPipelineComponent(t *testing.T) {
	b := newBatch(t)
	b.files("1")
	component := func(name string, spec map[string]any) string {
		id := b.ws + "/components/" + name + "/versions/1"
		if code, m := b.do("PUT", id, map[string]any{"properties": map[string]any{"componentSpec": spec}}); code != 201 {
			t.Fatal(code, m)
		}
		return id
	}
	count := component("count", map[string]any{
		"type": "command", "name": "count", "version": "1", "command": "ls ${{inputs.data}} > ${{outputs.out}}/list && echo ${{inputs.word}} >> ${{outputs.out}}/list && cat ${{outputs.out}}/list",
		"inputs": map[string]any{"data": map[string]any{"type": "uri_folder"}, "word": map[string]any{"type": "string"}}, "outputs": map[string]any{"out": map[string]any{"type": "uri_folder"}},
	})
	whole := component("whole", map[string]any{
		"type": "pipeline", "name": "whole", "version": "1",
		"inputs":  map[string]any{"data": map[string]any{"type": "uri_folder"}, "word": map[string]any{"type": "string", "default": "none"}},
		"outputs": map[string]any{"result": map[string]any{"type": "uri_folder"}},
		"jobs": map[string]any{"count": map[string]any{
			"type": "command", "componentId": count,
			"inputs": map[string]any{
				"data": map[string]any{"job_input_type": "literal", "value": "${{parent.inputs.data}}"}, "word": map[string]any{"job_input_type": "literal", "value": "${{parent.inputs.word}}"},
			},
			"outputs": map[string]any{"out": map[string]any{"type": "literal", "value": "${{parent.outputs.result}}"}},
		}},
	})
	b.put("/batchEndpoints/e/deployments/pipe", map[string]any{"deploymentConfiguration": map[string]any{
		"deploymentConfigurationType": "PipelineComponent", "componentId": map[string]any{"referenceType": "Id", "assetId": whole}, "settings": map[string]any{"default_compute": "azureml:local"},
	}})
	data := b.ws + "/data/files/versions/1"
	if code, m := b.do("PUT", data, map[string]any{"properties": map[string]any{"dataType": "uri_folder", "dataUri": "file://" + b.input}}); code != 201 {
		t.Fatal(code, m)
	}
	code, m := b.invoke(map[string]any{
		"data": map[string]any{"jobInputType": "UriFolder", "uri": data}, "word": map[string]any{"jobInputType": "Literal", "value": "hello"},
	}, "azureml-model-deployment", "pipe")
	if code != 201 {
		t.Fatal(code, m)
	}
	name := m["name"].(string)
	if status, st := b.end(name); status != "Completed" {
		t.Fatalf("%s: %s", status, st.Reason)
	}
	if log, _ := b.wait(name + "_count"); log != "f000.txt\nhello\n" {
		t.Errorf("the step printed %q", log)
	}
}

// folder is an input of an invocation.
func (b *batchServer) folder(name string) map[string]any {
	b.t.Helper()
	data := b.ws + "/data/" + name + "/versions/1"
	if code, m := b.do("PUT", data, map[string]any{"properties": map[string]any{"dataType": "uri_folder", "dataUri": "file://" + b.input}}); code/100 != 2 {
		b.t.Fatal(code, m)
	}
	return map[string]any{"jobInputType": "UriFolder", "uri": data}
}

func (b *batchServer) says(code int, m map[string]any, want int, text string) {
	b.t.Helper()
	raw, _ := json.Marshal(m)
	if code != want || !strings.Contains(string(raw), text) {
		b.t.Errorf("%d %s, want %d that says %q", code, raw, want, text)
	}
}

// TestBatchKeyWrites: who has a key of an endpoint writes below the job that they begin, and to the
// folders that the deployment names; not wherever its maker could.
func TestBatchKeyWrites(t *testing.T) {
	b := newBatch(t)
	b.files("1")
	const results = "azureml://datastores/workspaceblobstore/paths/results/"
	b.put("/batchEndpoints/e", map[string]any{"authMode": "Key", "defaults": map[string]any{"deploymentName": "one"}})
	in := map[string]any{"data": b.folder("files")}
	output := func(uri string) map[string]any {
		return map[string]any{"outputData": map[string]any{"score": map[string]any{"jobOutputType": "UriFolder", "uri": uri}}}
	}
	refuse := func(more map[string]any) {
		t.Helper()
		b.more = more
		code, m := b.invoke(in)
		b.says(code, m, http.StatusForbidden, "with a key of the endpoint")
	}
	refuse(output(results))
	b.more = nil
	code, m := b.invoke(in)
	b.says(code, m, 201, "")
	b.more = output(results)
	code, m = b.do("POST", b.uri[strings.Index(b.uri, "/berth/"):], map[string]any{"properties": map[string]any{"inputData": in, "outputData": b.more["outputData"]}})
	b.says(code, m, 201, "results")

	b.put("/batchEndpoints/e/deployments/one", b.deployment(map[string]any{"properties": map[string]any{"berth.outputs": "azureml://datastores/workspaceblobstore/paths/other, " + results}}))
	b.more = output(results + "today")
	code, m = b.invoke(in)
	b.says(code, m, 201, "results/today")
	if status, st := b.end(m["name"].(string)); status != "Completed" {
		t.Errorf("%s: %s", status, st.Reason)
	}
	for _, uri := range []string{
		results + "../x", strings.TrimSuffix(results, "/") + "2/", results + "%2e%2e/x", "azureml://datastores/workspaceblobstore/paths/", "file:///tmp/x", "/results",
		"azureml://datastores/workspaceartifactstore/paths/results/",
	} {
		refuse(output(uri))
	}
	refuse(map[string]any{"outputDataset": map[string]any{"datastoreId": b.ws + "/datastores/workspaceblobstore", "path": "x"}})
	in["data"].(map[string]any)["mode"] = "ReadWriteMount"
	refuse(nil)
	code, m = b.do("PUT", b.ws+"/batchEndpoints/e/deployments/bad", map[string]any{"location": "local", "properties": b.deployment(map[string]any{"properties": map[string]any{"berth.outputs": "/etc"}})})
	b.says(code, m, 400, "must list folders such as azureml://datastores/")
}

// TestBatchRepeated: a request that is sent again gets its job; another one with the same name or
// request id does not get the job of the first.
func TestBatchRepeated(t *testing.T) {
	b := newBatch(t)
	b.files("1")
	b.put("/batchEndpoints/e", map[string]any{"authMode": "Key", "defaults": map[string]any{"deploymentName": "one"}})
	one, two := map[string]any{"data": b.folder("files")}, map[string]any{"data": b.folder("others")}
	b.more = map[string]any{"name": "mine"}
	code, m := b.invoke(one, "repeatability_request-id", "r1")
	b.says(code, m, 201, `"name":"mine"`)
	code, m = b.invoke(one, "repeatability_request-id", "r1")
	b.says(code, m, 201, `"name":"mine"`)
	code, m = b.invoke(two, "repeatability_request-id", "r1")
	b.says(code, m, 409, "was begun by another invocation of e/one")
	code, m = b.invoke(one, "repeatability_request-id", "r2")
	b.says(code, m, 409, "was begun by another invocation of e/one")
	b.more = nil
	code, m = b.invoke(one, "repeatability_request-id", "r3")
	b.says(code, m, 201, "batchjob-")
	code, m = b.invoke(two, "repeatability_request-id", "r3")
	b.says(code, m, 409, "request id of its own")
	if _, list := b.do("GET", b.uri[strings.Index(b.uri, "/berth/"):], nil); len(list["value"].([]any)) != 2 {
		t.Errorf("jobs: %v", list)
	}
}
