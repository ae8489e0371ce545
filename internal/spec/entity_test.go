package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/berthml/berth/internal/spec"
)

// TestEntity shows the documents of testdata/entity/*.txtar: COLLECTION/NAME.rest.json becomes
// NAME.json.
func TestEntity(t *testing.T) {
	file := filepath.Join("testdata", "entity", "documents.txtar")
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []txtar.File
	for _, f := range a.Files {
		name, ok := strings.CutSuffix(f.Name, ".rest.json")
		if !ok {
			continue
		}
		out = append(out, f)
		t.Run(name, func(t *testing.T) {
			collection, _, _ := strings.Cut(name, "/")
			doc := strings.ReplaceAll(string(f.Data), "WS/", workspace+"/")
			e, err := spec.Entity(strings.ReplaceAll(collection, ".", "/"), document(t, doc))
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(e, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(got), workspace+"/", "WS/") + "\n"
			out = append(out, txtar.File{Name: name + ".json", Data: []byte(text)})
			if *update {
				return
			}
			if diff := cmp.Diff(find(a, name+".json"), text); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if *update {
		a.Files = out
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := spec.Entity("moons", map[string]any{}); err == nil {
		t.Error("a collection nobody knows is shown")
	}
}

// TestRoundTrip shows what fixtures became and reads it again: the second document must equal the
// first.
func TestRoundTrip(t *testing.T) {
	for kind, text := range map[string]string{
		"compute": "name: c\ntype: amlcompute\nsize: S\ntier: low_priority\nmin_instances: 1\nmax_instances: 3\nidle_time_before_scale_down: 300\nssh_public_access_enabled: true\n",
		"job": `
name: j
display_name: d
command: python x ${{inputs.a}}
environment: azureml:e:1
code: azureml:c:1
compute: azureml:cpu
inputs: {a: "1", d: {type: uri_file, path: "https://x/y", mode: download}}
outputs: {o: {type: uri_folder, mode: upload, name: n, version: "2"}}
resources: {instance_count: 2, docker_args: [--a, --b]}
distribution: {type: tensorflow, worker_count: 2, parameter_server_count: 1}
limits: {timeout: 90}
queue_settings: {job_tier: spot, priority: low}
identity: {type: managed, client_id: x}
`,
		"datastore": "name: d\ntype: azure_data_lake_gen2\naccount_name: a\nfilesystem: f\n",
		"model":     "name: m\nversion: '2'\npath: azureml://jobs/j/outputs/o/paths/p\ntype: mlflow_model\nflavors: {sklearn: {v: '1'}}\n",
		"data":      "name: d\nversion: '1'\npath: https://x/y\ntype: uri_file\n",
	} {
		first, err := spec.LoadBytes([]byte(text), spec.Options{Kind: kind})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		m := first.Main()
		var doc map[string]any
		if err := json.Unmarshal(m.Body, &doc); err != nil {
			t.Fatal(err)
		}
		doc["name"] = m.Name
		doc["id"] = workspace + "/" + m.Type + "/" + m.Name
		if m.Version != "" {
			doc["id"] = doc["id"].(string) + "/versions/" + m.Version
		}
		raw, _ := json.Marshal(doc)
		shown, err := spec.Entity(m.Type, document(t, string(raw)))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		again, _ := json.Marshal(shown)
		second, err := spec.LoadBytes(again, spec.Options{Kind: kind})
		if err != nil {
			t.Fatalf("%s: %v\n%s", kind, err, again)
		}
		if diff := cmp.Diff(string(m.Body), string(second.Main().Body)); diff != "" {
			t.Errorf("%s (-first +second):\n%s\n%s", kind, diff, again)
		}
		if second.Main().Name != m.Name || second.Main().Version != m.Version {
			t.Errorf("%s: name and version are %s:%s", kind, second.Main().Name, second.Main().Version)
		}
	}
}

// document is JSON as the client decodes it.
func document(t *testing.T, text string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEntityLeavesTheDocument: what is shown shares nothing with the document, which may be sent
// back.
func TestEntityLeavesTheDocument(t *testing.T) {
	const text = `{"id": "/x", "name": "j", "properties": {"jobType": "Command", "command": "x", "environmentVariables": {"n": 1}, "tags": {"a": "b"}, "resources": {}}}`
	doc := document(t, text)
	shown, err := spec.Entity("jobs", doc)
	if err != nil {
		t.Fatal(err)
	}
	shown["tags"].(map[string]any)["more"] = "c"
	if diff := cmp.Diff(document(t, text), doc); diff != "" {
		t.Errorf("the document has changed (-before +after):\n%s", diff)
	}
}
