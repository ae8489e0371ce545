package track_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// TestDeletedRunsAreCollected: what was deleted before the time is gone with its points and files,
// also after a restart. Runs that were not deleted, that were deleted later, or in which a
// registered version of MLflow's or the workspace's has its files stay whole, and are in nobody's
// way.
func TestDeletedRunsAreCollected(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	ids := map[string]string{}
	for _, name := range []string{"gone", "kept", "registered", "held"} {
		id := at(s.must("POST", "runs/create", obj{"experiment_id": "0", "run_name": name}), "run", "info", "run_id").(string)
		ids[name] = id
		s.must("POST", "runs/log-metric", obj{"run_id": id, "key": "loss", "value": 1, "timestamp": 1})
		if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/"+id+"/artifacts/f/a.txt", "text/plain", "text"); code != http.StatusOK {
			t.Fatalf("%d %s", code, out)
		}
	}
	s.must("POST", "registered-models/create", obj{"name": "m"})
	s.must("POST", "model-versions/create", obj{"name": "m", "source": "mlflow-artifacts:/0/" + ids["registered"] + "/artifacts/f", "run_id": ids["registered"]})
	sizes := s.must("GET", "/api/2.0/berth/experiments/sizes", nil)
	if fmt.Sprint(at(sizes, "experiments", 0, "runs"), at(sizes, "experiments", 0, "points"), at(sizes, "experiments", 0, "files"), at(sizes, "experiments", 0, "file_bytes")) != "4 4 4 16" {
		t.Errorf("sizes are %v", sizes)
	}
	s.must("POST", "runs/delete", obj{"run_id": ids["gone"]})
	s.must("POST", "runs/delete", obj{"run_id": ids["registered"]})
	err := s.db.Update(t.Context(), func(tx *store.Tx) error { // as a data asset of the workspace does
		return blob.Hold(tx, "artifacts", locate.ArtifactPath(ids["held"])+"/f", "data d:1", "u")
	})
	if err != nil {
		t.Fatal(err)
	}
	s.must("POST", "runs/delete", obj{"run_id": ids["held"]})
	if n, err := s.s.Collect(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Fatalf("%d runs were removed before their time: %v", n, err)
	}
	before := time.Now().Add(time.Second)
	s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": "metrics.loss > 0", "run_view_type": "ALL"})
	if n, err := s.s.Collect(t.Context(), before); n != 1 || err != nil {
		t.Fatalf("%d runs were removed: %v", n, err)
	}
	check := func() {
		t.Helper()
		if code, m := s.do("GET", "runs/get?run_id="+ids["gone"], nil); code != http.StatusNotFound {
			t.Errorf("%d %v", code, m)
		}
		if code, m := s.do("POST", "runs/restore", obj{"run_id": ids["gone"]}); code != http.StatusNotFound {
			t.Errorf("%d %v", code, m)
		}
		found := s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": "metrics.loss > 0", "run_view_type": "ALL"})
		if runs := found["runs"].([]any); len(runs) != 3 {
			t.Errorf("%d runs are left", len(runs))
		}
		sizes := s.must("GET", "/api/2.0/berth/experiments/sizes", nil)
		if fmt.Sprint(at(sizes, "experiments", 0, "runs"), at(sizes, "experiments", 0, "files")) != "3 3" {
			t.Errorf("sizes are %v", sizes)
		}
	}
	check()
	s.stop()
	s = start(t, dir)
	check()
	for _, name := range []string{"registered", "held"} { // it was not touched
		s.must("POST", "runs/restore", obj{"run_id": ids[name]})
		s.must("GET", "metrics/get-history?metric_key=loss&run_id="+ids[name], nil)
	}
	blobs, err := blob.Open(dir+"/blobs", s.db)
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	list, _, _, err := blobs.List(t.Context(), "artifacts", blob.ListOptions{})
	if err != nil || len(list) != 3 {
		t.Errorf("%d files are left, %v", len(list), err)
	}
}

// TestFilesOfEveryVersionAreHeld: also where the workspace's models cannot have its name. Whatever
// deletes files by their age asks for that.
func TestFilesOfEveryVersionAreHeld(t *testing.T) {
	s := start(t, t.TempDir())
	for _, name := range []string{"plain", "credit model", "Plain"} {
		id := at(s.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id").(string)
		if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/"+id+"/artifacts/f/a.txt", "text/plain", "text"); code != http.StatusOK {
			t.Fatalf("%d %s", code, out)
		}
		held := func() bool {
			t.Helper()
			version := ""
			err := s.db.View(t.Context(), func(tx *store.Tx) (err error) {
				version, err = blob.VersionBelow(tx, "artifacts", locate.ArtifactPath(id))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return version != ""
		}
		s.must("POST", "registered-models/create", obj{"name": name})
		version := at(s.must("POST", "model-versions/create", obj{"name": name, "source": "runs:/" + id + "/f", "run_id": id}), "model_version", "version")
		if !held() {
			t.Errorf("the files of %s are not held", name)
		}
		s.must("DELETE", "model-versions/delete", obj{"name": name, "version": version})
		if held() {
			t.Errorf("the files of %s are held after its version was deleted", name)
		}
	}
}

// TestVersionOfWholeRunKeepsIt: a version that was made from runs:/ID, the whole run, keeps the run
// from being removed, also after a restart.
func TestVersionOfWholeRunKeepsIt(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	for _, source := range []string{"runs:/%s", "runs:/%s/", "runs://%s/f"} {
		id := s.newRun("0", nil)
		if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/"+id+"/artifacts/f/a.txt", "text/plain", "text"); code != http.StatusOK {
			t.Fatalf("%d %s", code, out)
		}
		if code, m := s.do("POST", "registered-models/create", obj{"name": "m" + id}); code != http.StatusOK {
			t.Fatal(m)
		}
		if code, _ := s.do("POST", "model-versions/create", obj{"name": "m" + id, "source": fmt.Sprintf(source, id), "run_id": id}); code != http.StatusOK {
			t.Fatalf("%s: %d", source, code)
		}
		s.must("POST", "runs/delete", obj{"run_id": id})
		for range 2 {
			if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != 0 || err != nil {
				t.Fatalf("%s: %d runs were removed, %v", source, n, err)
			}
			s.stop()
			s = start(t, dir)
			s.must("GET", "runs/get?run_id="+id, nil)
		}
	}
}

// TestCollectReachesAllWorkspaces: runs that were deleted long ago go also in workspaces that
// nobody has used since the server started.
func TestCollectReachesAllWorkspaces(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	id := s.newRun("0", nil)
	s.must("POST", "runs/delete", obj{"run_id": id})
	s.stop()
	s = start(t, dir)
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != 1 || err != nil {
		t.Fatalf("%d runs were removed: %v", n, err)
	}
	s.want(http.StatusNotFound, "GET", "runs/get?run_id="+id, nil)
}

// TestDeletedModelsAreCollected: logged models count in the sizes of experiments, and what was
// deleted before the time is gone with its points and files, also after a restart and in a
// workspace that nobody has used since. One whose files are a registered version's stays.
func TestDeletedModelsAreCollected(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	run := s.newRun("0", nil)
	ids := map[string]string{}
	for _, name := range []string{"gone", "kept", "registered"} {
		id := at(s.must("POST", "logged-models", obj{"experiment_id": "0", "name": name}), "model", "info", "model_id").(string)
		ids[name] = id
		s.must("POST", "runs/log-metric", obj{"run_id": run, "key": "acc", "value": 1, "timestamp": 1, "model_id": id})
		if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/models/"+id+"/artifacts/f/a.txt", "text/plain", "text"); code != http.StatusOK {
			t.Fatalf("%d %s", code, out)
		}
	}
	s.must("POST", "registered-models/create", obj{"name": "m"})
	s.must("POST", "model-versions/create", obj{"name": "m", "source": "models:/" + ids["registered"]})
	sizes := func(want string) {
		t.Helper()
		e := at(s.must("GET", "/api/2.0/berth/experiments/sizes", nil), "experiments", 0)
		if got := fmt.Sprint(at(e, "runs"), at(e, "logged_models"), at(e, "points"), at(e, "files"), at(e, "file_bytes")); got != want {
			t.Errorf("sizes are %s, want %s", got, want)
		}
	}
	sizes("1 3 1 3 12") // a point of the run, which the models have too
	for _, name := range []string{"gone", "registered"} {
		s.must("DELETE", "logged-models/"+ids[name], nil)
	}
	if n, err := s.s.Collect(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Fatalf("%d models were removed before their time: %v", n, err)
	}
	s.must("GET", "logged-models/"+ids["gone"]+"?allow_deleted=true", nil)
	s.stop()
	s = start(t, dir)
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != 1 || err != nil {
		t.Fatalf("%d models were removed: %v", n, err)
	}
	for range 2 {
		s.want(http.StatusNotFound, "GET", "logged-models/"+ids["gone"]+"?allow_deleted=true", nil)
		s.must("GET", "logged-models/"+ids["kept"], nil)
		s.must("GET", "logged-models/"+ids["registered"]+"?allow_deleted=true", nil)
		if found := s.must("POST", "logged-models/search", obj{"experiment_ids": []string{"0"}})["models"].([]any); len(found) != 1 {
			t.Errorf("%d models are found", len(found))
		}
		sizes("1 2 1 2 8")
		s.stop()
		s = start(t, dir)
	}
}
