package migrate_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/migrate"
)

// put uploads a file to where a URI of the workspace is.
func (s *space) put(uri, name, text string) {
	s.t.Helper()
	root, _ := strings.CutPrefix(uri, "mlflow-artifacts:/")
	err := s.to.PutArtifact(s.t.Context(), strings.TrimLeft(root, "/")+"/"+name, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil })
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestVersionsOfRunsAndModels: versions that are made of a run, a logged model or another version
// are imported, with the files of what they are made of.
func TestVersionsOfRunsAndModels(t *testing.T) {
	there, here := newSpace(t), newSpace(t)
	run := there.newRun("0")
	logged := there.logged("lm", "0", run)
	there.put(at(there.must("GET", "runs/get?run_id="+run, nil), "run", "info", "artifact_uri").(string), "model/MLmodel", "of run")
	there.put(at(there.must("GET", "logged-models/"+logged, nil), "model", "info", "artifact_uri").(string), "MLmodel", "of model")
	made := map[string]string{ // the copies are listed before what they are made of, or after
		"r": "runs:/" + run + "/model", "l": "models:/" + logged, "a-copy": "models:/r/1", "s-copy": "models:/r/1", "t-copy": "models:/a-copy/1", "b-copy": "models:/l/1",
	}
	for _, name := range []string{"r", "l", "a-copy", "s-copy", "t-copy", "b-copy"} {
		there.must("POST", "registered-models/create", obj{"name": name})
		there.must("POST", "model-versions/create", obj{"name": name, "source": made[name]})
	}
	for range 2 {
		n := here.mustBring(there.source())
		if n.Models != len(made) {
			t.Errorf("%+v", n)
		}
	}
	for name := range made {
		uri, _ := here.must("GET", "model-versions/get-download-uri?version=1&name="+name, nil)["artifact_uri"].(string)
		want := "/" + run + "/artifacts/model"
		list := "artifacts/list?path=model&run_id=" + run
		if name == "l" || name == "b-copy" {
			want = "/" + logged + "/artifacts"
			list = "logged-models/" + url.PathEscape(logged) + "/artifacts/directories"
		}
		if !strings.HasPrefix(uri, "mlflow-artifacts:/") || !strings.HasSuffix(uri, want) {
			t.Errorf("the files of %s are at %s, want %s", name, uri, want)
		}
		if files, _ := here.must("GET", list, nil)["files"].([]any); len(files) != 1 {
			t.Errorf("%s has the files %v", name, files)
		}
	}
}

// TestCopyOfOurs: a version that is made of another one whose files did not come is left behind,
// also where a model of that name is registered here.
func TestCopyOfOurs(t *testing.T) {
	here := newSpace(t)
	here.must("POST", "registered-models/create", obj{"name": "R"})
	here.must("POST", "model-versions/create", obj{"name": "R", "source": "s3://ours/x"})
	from, err := migrate.Server(fake(t, map[string]http.HandlerFunc{
		"model-versions/search":           says(obj{"model_versions": []obj{{"version": "1", "source": "models:/R/1"}}}),
		"model-versions/get-download-uri": says(obj{"artifact_uri": "models:/R/1"}),
	}), "", nil, migrate.Patience)
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := here.bring(from)
	if err != nil || n.Versions != 0 || n.LeftBehind != 1 || !strings.Contains(n.NotImported[0], "version 1 of model M: its files are at models:/R/1, outside") {
		t.Errorf("%v, %+v", err, n)
	}
}
