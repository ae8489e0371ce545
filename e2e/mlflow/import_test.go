package mlflow_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
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
		imported(t, python, address, address, 4)
	})
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		python := world.Python(t, clients["2.22.5"]...)
		dir := filepath.Join(t.TempDir(), "mlruns")
		imported(t, python, dir, "file://"+dir, 3)
	})
}

// at is what a client is told that uses an MLflow server or folder.
func at(uri string) []string {
	return append(os.Environ(), "GIT_PYTHON_REFRESH=quiet", "MLFLOW_DISABLE_TELEMETRY=true", "MLFLOW_TRACKING_URI="+uri)
}

// scripts runs the files of this folder.
func scripts(t *testing.T, python string) func(env []string, name string, args ...string) string {
	return func(env []string, name string, args ...string) string {
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
}

// imported imports what fill.py writes, which has a number of runs, and compares.
func imported(t *testing.T, python, from, uri string, runs int) {
	t.Helper()
	s := world.Start(t)
	there, script := at(uri), scripts(t, python)
	bring := func(runs, unchanged, points int) {
		t.Helper()
		out, err := s.Command("tracking", "import", "--from", from).CombinedOutput()
		want := fmt.Sprintf("imported 3 experiments, %d runs (%d unchanged), %d points, ", runs, unchanged, points)
		if err != nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "; 0 things were left behind") {
			t.Fatalf("import: %v, without %q or with something left behind\n%s", err, want, out)
		}
		if unchanged == runs && !strings.Contains(string(out), " 0 files (0 bytes), ") {
			t.Fatalf("files were imported again\n%s", out)
		}
		if diff := cmp.Diff(script(there, "dump.py"), script(environ(t, s), "dump.py")); diff != "" {
			t.Fatalf("after the import the workspace differs (-source +workspace):\n%s", diff)
		}
	}
	script(there, "fill.py")
	bring(runs, 0, 1004)
	bring(runs, runs, 0)
	script(there, "fill.py", "more")
	bring(runs+1, runs-1, 1005) // the run that has one point more, and the new one
}

// TestImportKilled: an import that is killed again and again, at another request to its source each
// time, and then runs to its end has brought over everything, and nothing twice.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	python := world.Python(t, clients["3.17.2"]...)
	source := mlflowServer(t, python).base
	to, err := url.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	var left atomic.Int64 // requests until the kill
	var importer atomic.Pointer[os.Process]
	proxy := httputil.NewSingleHostReverseProxy(to)
	way := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		due := left.Add(-1) == 0
		proxy.ServeHTTP(w, r)
		if due { // it has its answer, or will not get it
			_ = importer.Load().Kill() // it may have ended
		}
	}))
	defer way.Close()
	s := world.Start(t)
	script := scripts(t, python)
	script(at(source), "fill.py")
	kills := 0
	for n := int64(1); ; n += 3 {
		cmd := s.Command("tracking", "import", "--from", way.URL)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		left.Store(1 << 40)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		importer.Store(cmd.Process)
		left.Store(n)
		err := cmd.Wait()
		if err == nil {
			break
		}
		if cmd.ProcessState.ExitCode() >= 0 {
			t.Fatalf("the import failed by itself: %v\n%s", err, said.String())
		}
		kills++
	}
	if kills < 3 {
		t.Fatalf("the import was killed %d times only", kills)
	}
	if diff := cmp.Diff(script(at(source), "dump.py"), script(environ(t, s), "dump.py")); diff != "" {
		t.Fatalf("after %d kills the workspace differs (-source +workspace):\n%s", kills, diff)
	}
	t.Logf("killed %d times", kills)
}
