package spec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth/internal/spec"
)

// others are options of a client whose server knows types that have no table in this package.
var others = spec.Options{JobTypes: []string{"command", "repeat"}, ComputeTypes: []string{"shell"}, Experiment: "e"}

// TestOtherTypes: a job, a node and a compute of types that only the server knows are read: what
// all of their sort have in common as ever, other keys as members of the same name. They are shown
// as they were written.
func TestOtherTypes(t *testing.T) {
	for _, c := range []struct{ name, kind, text, want string }{
		{
			"job", "job", "type: repeat\nname: r\ncommand: echo hi\nmost_often: 3\ncompute: azureml:box\nenvironment: azureml:e:1\n",
			`{"properties":{"jobType":"Repeat","displayName":"r","experimentName":"e","command":"echo hi","mostOften":3,"isArchived":false,"properties":{},"tags":{},
			"computeId":"/subscriptions/sub/resourceGroups/rg/providers/Microsoft.MachineLearningServices/workspaces/ws/computes/box",
			"environmentId":"/subscriptions/sub/resourceGroups/rg/providers/Microsoft.MachineLearningServices/workspaces/ws/environments/e/versions/1"}}`,
		},
		{
			"compute", "compute", "type: shell\nname: box\ndescription: mine\nmost_tasks: 3\ntags: {a: b}\n",
			`{"tags":{"a":"b"},"properties":{"computeType":"Shell","description":"mine","properties":{"mostTasks":3}}}`,
		},
		{
			"node", "job", "type: pipeline\nname: p\nsettings: {default_compute: azureml:box}\njobs:\n  again:\n    type: repeat\n    most_often: 3\n    command: echo hi\n",
			`{"properties":{"jobType":"Pipeline","displayName":"p","experimentName":"e","isArchived":false,"properties":{},"tags":{},"inputs":{},"outputs":{},
			"settings":{"_source":"YAML.JOB","default_compute":"/subscriptions/sub/resourceGroups/rg/providers/Microsoft.MachineLearningServices/workspaces/ws/computes/box"},
			"jobs":{"again":{"name":"again","type":"repeat","most_often":3,"command":"echo hi"}}}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := others
			o.Kind = c.kind
			r, err := spec.LoadBytes([]byte(c.text), o)
			if err != nil {
				t.Fatal(err)
			}
			var got, want map[string]any
			if err := json.Unmarshal(r.Resources[len(r.Resources)-1].Body, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if c.name == "node" {
				return
			}
			got["name"] = "x"
			shown, err := spec.Entity(c.kind+"s", got)
			if err != nil {
				t.Fatal(err)
			}
			for key, word := range map[string]string{"job": "most_often", "compute": "most_tasks"} {
				if key == c.kind && (shown[word] != 3.0 || shown["type"] != map[string]string{"job": "repeat", "compute": "shell"}[key]) {
					t.Errorf("shown as %v", shown)
				}
			}
		})
	}
	_, err := spec.LoadBytes([]byte("type: repeet\ncommand: x\n"), others)
	if err == nil || !strings.Contains(err.Error(), "repeat") {
		t.Errorf("a word that is almost right: %v", err)
	}
}
