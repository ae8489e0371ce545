// Package mlflow tells the stories of people who come with the mlflow client, unchanged.
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

// clients are the newest release and the last of the series before.
var clients = map[string][]string{
	"3.17.2": {"mlflow==3.17.2", "lightgbm==4.6.0"},
	"2.22.5": {"mlflow==2.22.5", "lightgbm==4.6.0"},
}

// The things story.py must have seen; a story that stops early cannot pass.
var seen = []string{
	"logging by hand", "nested runs, found by their parent and sorted", "autolog of scikit-learn, with its model",
	"registering, an alias, and loading by it", "autolog of lightgbm, a metric for each round",
}

// environ is what `berth tracking-uri --export` says.
func environ(t *testing.T, s *world.Server) []string {
	t.Helper()
	out, err := s.Command("tracking-uri", "-o", "json").Output()
	if err != nil {
		t.Fatalf("tracking-uri: %v", err)
	}
	var v struct{ Env map[string]string }
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GIT_PYTHON_REFRESH=quiet", "MLFLOW_DISABLE_TELEMETRY=true")
	for k, x := range v.Env {
		env = append(env, k+"="+x)
	}
	return env
}

func tells(t *testing.T, out []byte) {
	t.Helper()
	says(t, out, seen)
}

func says(t *testing.T, out []byte, seen []string) {
	t.Helper()
	for _, line := range seen {
		if !strings.Contains(string(out), "seen: "+line+"\n") {
			t.Errorf("the story does not say %q:\n%s", line, out)
		}
	}
}

// TestClient: the plain client logs, autologs, searches, registers and loads, on a laptop and in a
// job, with nothing set up but what `berth tracking-uri` prints and what every job is told.
func TestClient(t *testing.T) {
	story, err := filepath.Abs("story.py")
	if err != nil {
		t.Fatal(err)
	}
	for version, packages := range clients {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			python := world.Python(t, packages...)
			s := world.Start(t)
			cmd := exec.Command(python, story, "by-hand")
			cmd.Env, cmd.Dir = environ(t, s), t.TempDir()
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("outside: %v\n%s", err, out)
			}
			tells(t, out)
			run := s.Command("run", "--name", "in-job", "--experiment", "jobs", "--", python, story, "by-job", "in-job")
			run.Dir = t.TempDir()
			if out, err = run.CombinedOutput(); err != nil {
				t.Fatalf("in a job: %v\n%s", err, out)
			}
			tells(t, out)
			out, err = s.Command("runs", "--filter", "attributes.run_id = 'in-job' AND metrics.acc > 0.9 AND params.depth = '3'", "-o", "json").CombinedOutput()
			if err != nil || !strings.Contains(string(out), `"FINISHED"`) {
				t.Errorf("the job's run: %v\n%s", err, out)
			}
			oneRegistry(t, s, python)
		})
	}
}

// oneRegistry: what the client registered is a model of the workspace, and a model of the workspace
// is one that the client loads.
func oneRegistry(t *testing.T, s *world.Server, python string) {
	t.Helper()
	dir := t.TempDir()
	berth := func(args ...string) string {
		t.Helper()
		cmd := s.Command(args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out := berth("model", "show", "-n", "by-job", "-v", "2", "-o", "json"); !strings.Contains(out, `"mlflow_model"`) || !strings.Contains(out, `"checked": "yes"`) {
		t.Errorf("the model is %s", out)
	}
	berth("model", "download", "-n", "by-job", "-v", "2", "-p", "got")
	found, err := filepath.Glob(filepath.Join(dir, "got", "*", "*", "MLmodel"))
	if err == nil && len(found) == 0 {
		found, err = filepath.Glob(filepath.Join(dir, "got", "*", "MLmodel"))
	}
	if err != nil || len(found) != 1 {
		t.Fatalf("the download has %v, %v", found, err)
	}
	berth("model", "create", "-n", "copied", "-v", "1", "-t", "mlflow_model", "-p", filepath.Dir(found[0]))
	cmd := exec.Command(python, "-c", "import mlflow, numpy\nprint(mlflow.pyfunc.load_model('models:/copied/1').predict(numpy.array([[5.1, 3.5, 1.4, 0.2]])))")
	cmd.Env, cmd.Dir = environ(t, s), dir
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "[0]") {
		t.Errorf("loading a model of the workspace: %v\n%s", err, out)
	}
}

// TestExample runs examples/tracking: jobs that train, log and register, and the best of them found
// and loaded.
func TestExample(t *testing.T) {
	t.Parallel()
	python := world.Python(t, clients["3.17.2"]...)
	s := world.Start(t)
	script, err := filepath.Abs("../../examples/tracking/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.Command()
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", script}
	cmd.Env = append(cmd.Env, "BERTH="+s.Bin, "PYTHON="+python, "MLFLOW_DISABLE_TELEMETRY=true", "GIT_PYTHON_REFRESH=quiet")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "champion: version ") || strings.Contains(string(out), "alpha 1000,") {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = s.Command("ps").CombinedOutput()
	if err != nil || strings.Count(string(out), "accuracy 0.") != 3 {
		t.Errorf("berth ps: %v\n%s", err, out)
	}
}
