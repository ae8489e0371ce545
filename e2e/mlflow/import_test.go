package mlflow_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth/e2e/world"
)

// TestImport: what a real server, or a folder without one, has is in the workspace after an import,
// seen by the same client: experiments, runs under their ids, every point, files, models that load.
// Another import brings what is new and doubles nothing.
func TestImport(t *testing.T) {
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		python := world.Python(t, clients["3.17.2"]...)
		address := mlflowServer(t, python).base
		imported(t, python, address, address)
	})
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		python := world.Python(t, clients["2.22.5"]...)
		dir := filepath.Join(t.TempDir(), "mlruns")
		imported(t, python, dir, "file://"+dir)
	})
}

func imported(t *testing.T, python, from, uri string) {
	t.Helper()
	s := world.Start(t)
	there := append(os.Environ(), "GIT_PYTHON_REFRESH=quiet", "MLFLOW_DISABLE_TELEMETRY=true", "MLFLOW_TRACKING_URI="+uri)
	script := func(env []string, name string, args ...string) string {
		t.Helper()
		path, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, append([]string{path}, args...)...)
		cmd.Env, cmd.Dir = env, t.TempDir()
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, said.String())
		}
		return string(out)
	}
	bring := func(want string) {
		t.Helper()
		out, err := s.Command("tracking", "import", "--from", from).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("import: %v, without %q\n%s", err, want, out)
		}
		if diff := cmp.Diff(script(there, "dump.py"), script(environ(t, s), "dump.py")); diff != "" {
			t.Fatalf("after the import the workspace differs (-source +workspace):\n%s", diff)
		}
	}
	script(there, "fill.py")
	bring("things were left behind")
	bring("unchanged), 0 points, 0 files")
	script(there, "fill.py", "more")
	bring("things were left behind")
}
