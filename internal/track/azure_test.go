package track_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/track"
)

const history = "/" + track.HistoryPath

// TestHistoryOpensFilesOfTheCaller: the run history signs an address for one file that the caller
// may read or write, and for no other.
func TestHistoryOpensFilesOfTheCaller(t *testing.T) {
	s := start(t, t.TempDir())
	job, other := s.as(s.addJob("train", "ann", "mine")), s.as(s.addJob("other", "bob", "theirs"))
	other.must("GET", "runs/get?run_id=other", nil)
	if code, _, out := s.as(track.Caller{User: "bob", Write: true}).raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/other/artifacts/a.txt", "", "bytes"); code != http.StatusOK {
		t.Fatalf("%d %s", code, out)
	}
	files := func(paths ...string) obj {
		list := []obj{}
		for _, p := range paths {
			list = append(list, obj{"path": p})
		}
		return obj{"paths": list}
	}
	m := job.must("POST", history+"train/artifacts/batch/metadata", files("d/ü b.txt"))
	uri, _ := at(m, "artifactContentInformation", "d/ü b.txt", "contentUri").(string)
	if !strings.HasPrefix(uri, "https://h/artifacts/ExperimentRun/dcid.train/d/ü b.txt?perm=w&") {
		t.Errorf("the file is written at %q", uri)
	}
	for _, p := range []string{"../other/a.txt", "/etc/passwd", "a/../../other/a.txt", "", "..%2fother%2fa.txt"} {
		job.want(http.StatusBadRequest, "POST", history+"train/artifacts/batch/metadata", files("ok.txt", p))
		job.want(http.StatusBadRequest, "GET", history+"train/artifacts/contentinfo?path="+url.QueryEscape(p), nil)
	}
	for _, call := range []string{"other/artifacts", "other/artifacts/contentinfo?path=a.txt"} {
		job.want(http.StatusForbidden, "GET", history+call, nil)
		other.want(http.StatusOK, "GET", history+call, nil)
	}
	job.want(http.StatusForbidden, "POST", history+"other/artifacts/batch/metadata", files("a.txt"))
	s.as(track.Caller{User: "reader"}).want(http.StatusForbidden, "POST", history+"other/artifacts/batch/metadata", files("a.txt"))
	other.want(http.StatusNotFound, "GET", history+"other/artifacts/contentinfo?path=none.txt", nil)
	// Where others keep their files is not said either.
	bob := s.as(track.Caller{User: "bob", Write: true})
	far := at(bob.must("POST", "experiments/create", obj{"name": "far", "artifact_location": "s3://bucket/x"}), "experiment_id").(string)
	run := bob.newRun(far, nil)
	job.want(http.StatusForbidden, "GET", history+run+"/artifacts", nil)
	job.want(http.StatusForbidden, "POST", history+run+"/artifacts/batch/metadata", files("a.txt"))
	bob.want(http.StatusBadRequest, "GET", history+run+"/artifacts", nil)
	other.want(http.StatusNotFound, "GET", history+"none/artifacts", nil)
}

// TestPluginAddresses: Azure's plugin sees addresses of its own form, and what it registers by them
// is at the place that everybody else knows.
func TestPluginAddresses(t *testing.T) {
	s := start(t, t.TempDir())
	plugin := s.as(track.Caller{User: "u", Write: true, Azure: true})
	run := plugin.newRun("0", nil)
	uri, _ := at(plugin.must("GET", "runs/get?run_id="+run, nil), "run", "info", "artifact_uri").(string)
	if want := ofTests.AzurePluginURI("https://h") + "/experiments/0/runs/" + run + "/artifacts"; uri != want {
		t.Fatalf("the artifacts are at %q, want %q", uri, want)
	}
	plugin.must("POST", "registered-models/create", obj{"name": "m"})
	plugin.must("POST", "model-versions/create", obj{"name": "m", "source": uri + "/model", "run_id": run})
	plugin.want(http.StatusNotFound, "POST", "model-versions/create", obj{"name": "m", "source": strings.Replace(uri, run, "none", 1)})
	for who, want := range map[*server]string{s: "mlflow-artifacts:/0/" + run + "/artifacts/model", plugin: uri + "/model"} {
		if got := at(who.must("GET", "model-versions/get-download-uri?name=m&version=1", nil), "artifact_uri"); got != want {
			t.Errorf("the version is at %v, want %s", got, want)
		}
	}
}

// TestUploadsAreCheckedTogether: whether the caller may write to a run is asked once for all files
// of a request.
func TestUploadsAreCheckedTogether(t *testing.T) {
	s := start(t, t.TempDir())
	job := s.as(s.addJob("j", "ann", "Default"))
	model := at(job.must("POST", "logged-models", obj{"experiment_id": "0"}), "model", "info", "model_id").(string)
	nested := at(job.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id").(string)
	s.must("GET", "runs/get?run_id=j", nil)
	bob, ann := s.as(track.Caller{User: "bob", Write: true}), s.as(track.Caller{User: "ann", Write: true})
	for _, id := range []string{"j", nested, model} {
		bob.want(http.StatusForbidden, "POST", history+id+"/artifacts/batch/metadata", obj{"paths": []obj{{"path": "a"}}})
	}
	var files []obj
	for i := range 100 {
		files = append(files, obj{"path": fmt.Sprint("f", i)})
	}
	for _, id := range []string{nested, model, "j"} {
		n := 0
		ann.s.Sign = func(a track.Address) string {
			if n++; n == 1 && id == "j" {
				s.db.Close() // what is asked of it now fails
			}
			return "https://h/" + a.Name + "?of=" + a.Of
		}
		got := ann.must("POST", history+id+"/artifacts/batch/metadata", obj{"paths": files})
		uri, _ := at(got, "artifactContentInformation", "f99", "contentUri").(string)
		if n != len(files) || !strings.Contains(uri, "/f99?of=") || strings.Contains(uri, "?of=&") {
			t.Errorf("%d addresses; the last is %q", n, uri)
		}
	}
}
