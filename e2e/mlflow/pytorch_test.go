package mlflow_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestPyTorch: autologging of PyTorch with Lightning, and models of PyTorch, on a laptop and in a
// job. BERTH_MLFLOW_TORCH is a list of Pythons, with ":" between them, that have mlflow, torch and
// lightning: over a gigabyte, so that the test does not install them.
func TestPyTorch(t *testing.T) {
	list := os.Getenv("BERTH_MLFLOW_TORCH")
	if list == "" {
		t.Skip("BERTH_MLFLOW_TORCH names no Python that has mlflow, torch and lightning")
	}
	story, err := filepath.Abs("pytorch.py")
	if err != nil {
		t.Fatal(err)
	}
	for python := range strings.SplitSeq(list, ":") {
		version, err := exec.Command(python, "-c", "import mlflow; print(mlflow.__version__)").Output()
		if err != nil {
			t.Fatalf("%s: %v", python, err)
		}
		t.Run(strings.TrimSpace(string(version)), func(t *testing.T) {
			s := world.Start(t)
			outside := exec.Command(python, story, "by-hand")
			outside.Env, outside.Dir = environ(t, s), t.TempDir()
			inside := s.Command("run", "--name", "in-job", "--experiment", "jobs", "--", python, story, "by-job")
			inside.Dir = t.TempDir()
			for name, cmd := range map[string]*exec.Cmd{"outside": outside, "in a job": inside} {
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", name, err, out)
				}
				says(t, out, []string{"autolog of lightning, with its metrics, parameters and model", "a torch model and its weights, logged, registered and loaded"})
			}
		})
	}
}
