package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// collected reads the samples of a data asset, as a job does, and the names of their files.
func (e *endpointServer) collected(data string) (all []map[string]any, names []string) {
	e.t.Helper()
	code, m := e.do("PUT", e.ws+"/jobs/read-"+data, map[string]any{"properties": map[string]any{
		"jobType": "Command", "command": `cd "${{inputs.kept}}" && for f in $(find . -type f); do echo "file $f"; cat "$f"; done`,
		"inputs": map[string]any{"kept": map[string]any{"jobInputType": "uri_folder", "uri": e.ws + "/data/" + data + "/versions/1"}},
	}})
	if code != http.StatusCreated {
		e.t.Fatal(code, m)
	}
	log, status := e.wait("read-" + data)
	if status != "Completed" {
		e.t.Fatal(status, log)
	}
	for line := range strings.Lines(log) {
		if name, ok := strings.CutPrefix(line, "file ./"); ok {
			names = append(names, strings.TrimSpace(name))
			continue
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			e.t.Fatalf("%v in %q", err, line)
		}
		all = append(all, v)
	}
	return all, names
}

// TestEndpointCollects: a deployment that asks for it has its requests and answers kept in data
// assets, at its rates, without credentials; others have not, and nobody writes to the data of
// others.
func TestEndpointCollects(t *testing.T) {
	home := shortHome(t)
	e := startEndpoint(t, start(t, home))
	for name, uri := range map[string]string{"asked": "azureml://datastores/workspaceblobstore/paths/kept/asked", "answered": "azureml://datastores/workspaceblobstore/paths/kept/answered"} {
		code, m := e.do("PUT", e.ws+"/data/"+name+"/versions/1", map[string]any{"properties": map[string]any{"dataType": "uri_folder", "dataUri": uri}})
		if code != http.StatusCreated {
			t.Fatal(code, m)
		}
	}
	script := e.code("c", echo)
	deploy := func(name string, collector map[string]any) (int, map[string]any) {
		return e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/"+name, map[string]any{"location": "local", "properties": scripted(script, map[string]any{"dataCollector": collector})})
	}
	collection := func(data string, rate any) map[string]any {
		return map[string]any{"dataCollectionMode": "Enabled", "dataId": e.ws + "/data/" + data + "/versions/1", "samplingRate": rate}
	}
	for text, collector := range map[string]map[string]any{
		"from 0 to 1":          {"collections": map[string]any{"request": collection("asked", 2)}},
		"Minute, Hour or Day":  {"collections": map[string]any{"request": collection("asked", 1)}, "rollingRate": "Year"},
		"nowhere":              {"collections": map[string]any{"request": collection("nowhere", 1)}},
		"dataId is missing":    {"collections": map[string]any{"response": map[string]any{"dataCollectionMode": "Enabled"}}},
		"up to 20 can be kept": {"collections": map[string]any{"request": collection("asked", 1)}, "requestLogging": map[string]any{"captureHeaders": make([]string, 21)}},
	} {
		if code, m := deploy("blue", collector); code/100 == 2 || !strings.Contains(fmt.Sprint(m), text) {
			t.Errorf("%s: %d %v", text, code, m)
		}
	}
	code, m := e.do("POST", "/tokens", map[string]any{"name": "bob", "role": "user"})
	if code != http.StatusCreated {
		t.Fatal(code, m)
	}
	bob := trackerOf(t, map[string]string{
		"MLFLOW_TRACKING_SERVER_CERT_PATH": filepath.Join(home, "tls", "ca.pem"), "MLFLOW_TRACKING_URI": e.app.URL, "MLFLOW_TRACKING_TOKEN": m["token"].(string),
	})
	if code, m := bob.do("PUT", e.ws+"/onlineEndpoints/his", map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key"}}); code != http.StatusCreated {
		t.Fatal(code, m)
	}
	his := scripted(script, map[string]any{"dataCollector": map[string]any{"collections": map[string]any{"request": collection("asked", 1)}}})
	if code, m := bob.do("PUT", e.ws+"/onlineEndpoints/his/deployments/blue", map[string]any{"location": "local", "properties": his}); code != http.StatusForbidden || !strings.Contains(fmt.Sprint(m), "name one of yours") {
		t.Errorf("samples in the data of another user: %d %v", code, m)
	}
	code, m = deploy("blue", map[string]any{
		"collections": map[string]any{"request": collection("asked", 1), "response": collection("answered", 0), "model_inputs": collection("asked", 1)},
		"rollingRate": "Day", "requestLogging": map[string]any{"captureHeaders": []string{"x-team", "authorization", "x-none"}},
	})
	if code != http.StatusCreated {
		t.Fatal(code, m)
	}
	if code, m := deploy("green", map[string]any{"collections": map[string]any{"response": collection("answered", 1)}}); code != http.StatusCreated {
		t.Fatal(code, m)
	}
	for _, name := range []string{"blue", "green"} {
		if state, b := e.state(name); state != "Succeeded" {
			t.Fatal(state, b)
		}
	}
	if _, m := e.do("POST", e.ws+"/onlineEndpoints/e/explain", map[string]any{}); !strings.Contains(fmt.Sprint(m), "nothing is collected as model_inputs") {
		t.Errorf("it does not say what is not collected: %v", m)
	}
	for i := range 3 {
		e.call(fmt.Sprintf(`{"n": %d}`, i), "azureml-model-deployment", "blue", "X-Team", "homes", "x-ms-client-request-id", "mine")
	}
	e.call(`{"raise": true}`, "azureml-model-deployment", "green")
	e.stop()
	e.remote.CloseIdleConnections()
	e.server = start(t, home)
	asked, names := e.collected("asked")
	if len(asked) != 3 || len(names) != 1 || strings.Count(names[0], "/") != 3 {
		t.Fatalf("%v in %v", asked, names)
	}
	for i, v := range asked {
		data, _ := v["data"].(map[string]any)
		if data["n"] != float64(i) || v["type"] != "azureml.inference.request" || v["specversion"] != "1.0" || v["correlationid"] != "mine" ||
			fmt.Sprint(v["headers"]) != "map[X-Team:homes]" || !strings.HasSuffix(v["source"].(string), "/onlineEndpoints/e/deployments/blue") {
			t.Errorf("%v", v)
		}
	}
	answered, _ := e.collected("answered")
	if len(answered) != 1 || answered[0]["statuscode"] != float64(500) || !strings.Contains(fmt.Sprint(answered[0]["data"]), "scoring script") || answered[0]["headers"] != nil {
		t.Errorf("%v", answered)
	}
	if text := fmt.Sprint(asked, answered); strings.Contains(text, e.key) {
		t.Error("the key was kept")
	}
	e.end()
}
