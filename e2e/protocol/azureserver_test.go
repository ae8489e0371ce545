package protocol_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestAzureServer: an environment that starts azureml-inference-server-http, as Azure's images do,
// serves a script unchanged, at the port and by the routes of its inference_config.
func TestAzureServer(t *testing.T) {
	s := world.Start(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"model/factor.txt": "3",
		"model/score.py": `
import json, os

def init():
    global factor
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "factor.txt")) as f:
        factor = int(f.read())

def run(data):
    return [factor * x for x in json.loads(data)["data"]]
`,
		"request.json": `{"data": [1, 2]}`,
		"blue.yml": `
name: blue
endpoint_name: images
model:
  path: model
environment:
  image: mcr.microsoft.com/azureml/minimal-ubuntu22.04-py39-cpu-inference:latest
  conda_file: {dependencies: [python=3.11, {pip: [azureml-inference-server-http==1.5.1]}]}
  inference_config:
    liveness_route: {port: 31311, path: /}
    readiness_route: {port: 31311, path: /}
    scoring_route: {port: 31311, path: /score}
properties:
  berth.command: exec azmlinfsrv --entry_script "$AZUREML_MODEL_DIR/model/score.py" --port 31311
instance_type: Standard_DS3_v2
instance_count: 1
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := s.Command(args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			logs, _ := s.Command("endpoint", "logs", "images", "blue").CombinedOutput() // for people
			t.Fatalf("berth %s: %v\n%s\n%s", strings.Join(args, " "), err, out, logs)
		}
		return strings.TrimSpace(string(out))
	}
	run("online-endpoint", "create", "-n", "images")
	run("online-deployment", "create", "-f", "blue.yml", "--all-traffic")
	if got := run("online-endpoint", "invoke", "-n", "images", "-r", "request.json"); !strings.HasSuffix(got, "[3, 6]") {
		t.Errorf("it answers %s", got)
	}
	if got := run("online-deployment", "get-logs", "-e", "images", "-n", "blue"); !strings.Contains(got, "Azure ML Inferencing HTTP server v1.5.1") {
		t.Errorf("the log is not that of Azure's server:\n%s", got)
	}
	run("online-endpoint", "delete", "-n", "images", "--yes")
}
