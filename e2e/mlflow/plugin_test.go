package mlflow_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// plugins are what Azure's plugin is installed with: the newest mlflow that it allows, and the last
// of the series before.
var plugins = map[string][]string{
	"3.15.0": {"azureml-mlflow==1.62.0.post6", "mlflow==3.15.0"},
	"2.22.5": {"azureml-mlflow==1.62.0.post6", "mlflow==2.22.5"},
}

var seenPlugin = []string{"parameters, metrics and tags", "files, listed and downloaded", "search", "registering, an alias, and loading by it"}

// TestPlugin: Azure's plugin for MLflow, unchanged, by the azureml:// address that the workspace
// shows, on a laptop and in a job.
func TestPlugin(t *testing.T) {
	story, err := filepath.Abs("plugin.py")
	if err != nil {
		t.Fatal(err)
	}
	for version, packages := range plugins {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python := world.Python(t, packages...)
			s := world.Start(t)
			azure := azureEnviron(t, s)
			uri := shownURI(t, s)
			plain := map[string]string{}
			for _, kv := range environ(t, s) {
				k, v, _ := strings.Cut(kv, "=")
				plain[k] = v
			}
			cmd := exec.Command(python, story, uri, "by-hand", plain["MLFLOW_TRACKING_URI"], plain["MLFLOW_TRACKING_TOKEN"], plain["MLFLOW_TRACKING_SERVER_CERT_PATH"])
			cmd.Env, cmd.Dir = append(os.Environ(), "AZUREML_CURRENT_CLOUD=Berth", "GIT_PYTHON_REFRESH=quiet", "MLFLOW_DISABLE_TELEMETRY=true"), t.TempDir()
			for k, v := range azure {
				cmd.Env = append(cmd.Env, k+"="+v)
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("outside: %v\n%s", err, out)
			}
			says(t, out, append(seenPlugin, "the plain client beside the plugin"))
			// What docs/tracking.md says a job has to set for the plugin.
			script := `export REQUESTS_CA_BUNDLE=$MLFLOW_TRACKING_SERVER_CERT_PATH AZUREML_CURRENT_CLOUD=AzureCloud; exec "$@"`
			run := s.Command("run", "--name", "in-job", "--experiment", "jobs", "--", "sh", "-c", script, "sh", python, story, uri, "by-job", "in-job")
			run.Dir = t.TempDir()
			if out, err = run.CombinedOutput(); err != nil {
				t.Fatalf("in a job: %v\n%s", err, out)
			}
			says(t, out, seenPlugin)
		})
	}
}

// azureEnviron is what `berth azure-env` says.
func azureEnviron(t *testing.T, s *world.Server) map[string]string {
	t.Helper()
	out, err := s.Command("azure-env", "-o", "json").Output()
	if err != nil {
		t.Fatalf("azure-env: %v", err)
	}
	var v struct{ Env map[string]string }
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	return v.Env
}

// shownURI is the tracking address that the workspace shows.
func shownURI(t *testing.T, s *world.Server) string {
	t.Helper()
	out, err := s.Command("workspace", "show", "--query", "mlflow_tracking_uri", "-o", "tsv").Output()
	if err != nil {
		t.Fatalf("workspace show: %v", err)
	}
	uri := strings.TrimSpace(string(out))
	if !strings.HasPrefix(uri, "azureml://") {
		t.Fatalf("the workspace shows %q", uri)
	}
	return uri
}
