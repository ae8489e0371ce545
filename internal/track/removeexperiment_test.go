package track_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// upload puts a file at a path of the artifact proxy.
func (s *server) upload(path string) {
	s.t.Helper()
	if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/"+path, "text/plain", "text"); code != http.StatusOK {
		s.t.Fatalf("%d %s", code, out)
	}
}

// fileNames are all files of the workspace.
func (s *server) fileNames() (names []string) {
	s.t.Helper()
	list, _, _, err := s.blobs.List(s.t.Context(), "artifacts", blob.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, b := range list {
		names = append(names, b.Name)
	}
	return names
}

// TestDeletedExperimentsAreCollected: an experiment that was deleted before the time goes with its
// runs, its logged models and all files, also in a workspace that nobody has used since, and its
// name is free. One that a registered version or a job needs stays, and can be restored.
func TestDeletedExperimentsAreCollected(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	ids, models := map[string]string{}, map[string]string{}
	for _, name := range []string{"gone", "live", "registered", "job's"} {
		id := s.must("POST", "experiments/create", obj{"name": name})["experiment_id"].(string)
		ids[name] = id
		run := s.newRun(id, nil)
		models[name] = at(s.must("POST", "logged-models", obj{"experiment_id": id, "source_run_id": run}), "model", "info", "model_id").(string)
		s.must("POST", "runs/log-metric", obj{"run_id": run, "key": "acc", "value": 1, "timestamp": 1, "model_id": models[name]})
		s.upload(id + "/" + run + "/artifacts/f")
		s.upload(id + "/models/" + models[name] + "/artifacts/f")
		s.upload(id + "/stray")
	}
	s.must("POST", "registered-models/create", obj{"name": "m"})
	s.must("POST", "model-versions/create", obj{"name": "m", "source": "models:/" + models["registered"]})
	s.addJob("j", "u", "job's")
	for _, name := range []string{"gone", "registered", "job's"} {
		s.must("POST", "experiments/delete", obj{"experiment_id": ids[name]})
	}
	s.must("POST", "experiments/delete", obj{"experiment_id": "0"})
	if n, err := s.s.Collect(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Fatalf("%d runs and models were removed before their time: %v", n, err)
	}
	s.stop()
	s = start(t, dir)
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != 5 || err != nil {
		t.Fatalf("%d runs and models were removed: %v", n, err)
	}
	for range 2 {
		s.want(http.StatusNotFound, "GET", "experiments/get?experiment_id="+ids["gone"], nil)
		s.want(http.StatusNotFound, "GET", "experiments/get-by-name?experiment_name=gone", nil)
		s.want(http.StatusNotFound, "POST", "experiments/restore", obj{"experiment_id": ids["gone"]})
		s.want(http.StatusNotFound, "GET", "logged-models/"+models["gone"]+"?allow_deleted=true", nil)
		s.want(http.StatusNotFound, "GET", "logged-models/"+models["job's"]+"?allow_deleted=true", nil)
		s.want(http.StatusOK, "GET", "logged-models/"+models["registered"], nil)
		for _, name := range []string{"live", "registered", "job's", "Default"} {
			s.want(http.StatusOK, "GET", "experiments/get-by-name?experiment_name="+name, nil)
		}
		if names := s.fileNames(); len(names) != 6 || slices.Contains(names, "mlflow/"+ids["gone"]+"/stray") {
			t.Errorf("the files are %q", names)
		}
		s.stop()
		s = start(t, dir)
	}
	if again := s.must("POST", "experiments/create", obj{"name": "gone"})["experiment_id"]; again == ids["gone"] {
		t.Errorf("the id %s was given out again", again)
	}
	for _, name := range []string{"registered", "job's"} {
		s.must("POST", "experiments/restore", obj{"experiment_id": ids[name]})
	}
	s.must("POST", "experiments/restore", obj{"experiment_id": "0"})
	if got := s.stages(ids["job's"]); got != "1 0" {
		t.Errorf("%s runs of the job's experiment are active and deleted", got)
	}
	s.must("DELETE", "model-versions/delete", obj{"name": "m", "version": "1"})
	s.must("POST", "experiments/delete", obj{"experiment_id": ids["registered"]})
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != 1 || err != nil {
		t.Fatalf("%d runs and models were removed: %v", n, err)
	}
	s.want(http.StatusNotFound, "GET", "experiments/get?experiment_id="+ids["registered"], nil)
}

// TestExperimentIsCleaned: by who cleans up, too. Files of nobody's are removed with everybody's
// only.
func TestExperimentIsCleaned(t *testing.T) {
	s := start(t, t.TempDir())
	clean := func(user string, dry bool) int64 {
		t.Helper()
		sum, err := s.s.Clean(t.Context(), s.ws, user, berth.CleanStorage{Before: time.Now().Add(time.Second), DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		return sum.Runs
	}
	for _, stray := range []bool{false, true} {
		exp := s.must("POST", "experiments/create", obj{"name": fmt.Sprint("e", stray)})["experiment_id"].(string)
		s.must("POST", "logged-models", obj{"experiment_id": exp})
		s.newRun(exp, nil)
		if stray {
			s.upload(exp + "/stray")
		}
		if n := clean("u", false); n != 0 {
			t.Errorf("%d of an experiment that is not deleted", n)
		}
		s.must("POST", "experiments/delete", obj{"experiment_id": exp})
		if n := clean("other", false); n != 0 {
			t.Errorf("%d of somebody else", n)
		}
		if n := clean("u", true); n != 2 {
			t.Errorf("%d would be removed", n)
		}
		s.want(http.StatusOK, "GET", "experiments/get?experiment_id="+exp, nil)
		if n := clean("u", false); n != 2 {
			t.Errorf("%d were removed", n)
		}
		if stray {
			s.want(http.StatusOK, "GET", "experiments/get?experiment_id="+exp, nil)
			clean("", false)
		}
		s.want(http.StatusNotFound, "GET", "experiments/get?experiment_id="+exp, nil)
	}
}

// TestRemovalOfExperimentGoesOn: one that was interrupted is ended the next time, and the
// experiment cannot be restored meanwhile.
func TestRemovalOfExperimentGoesOn(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	exp := s.must("POST", "experiments/create", obj{"name": "e"})["experiment_id"].(string)
	s.must("POST", "experiments/delete", obj{"experiment_id": exp})
	s.edit("mlflow/experiments", exp, func(d *store.Doc) {
		d.Own = append([]byte(`{"Leaving":true,`), d.Own[1:]...)
	})
	s.stop()
	s = start(t, dir)
	s.want(http.StatusNotFound, "POST", "experiments/restore", obj{"experiment_id": exp})
	if _, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	s.want(http.StatusNotFound, "GET", "experiments/get?experiment_id="+exp, nil)
}

// TestModelsOfOthersKeepAnExperiment: who may not delete a logged model may not delete its
// experiment either, with which it would be removed.
func TestModelsOfOthersKeepAnExperiment(t *testing.T) {
	s := start(t, t.TempDir())
	exp := s.must("POST", "experiments/create", obj{"name": "e"})["experiment_id"].(string)
	job := s.as(s.addJob("j", "ann", "e"))
	model := at(job.must("POST", "logged-models", obj{"experiment_id": exp}), "model", "info", "model_id").(string)
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	ann.must("POST", "runs/delete", obj{"run_id": "j"})
	bob.want(http.StatusForbidden, "DELETE", "logged-models/"+model, nil)
	bob.want(http.StatusForbidden, "POST", "experiments/delete", obj{"experiment_id": exp})
	ann.must("POST", "experiments/delete", obj{"experiment_id": exp})
}

// TestImportedIsCleaned: what somebody brought over and deleted is theirs to remove.
func TestImportedIsCleaned(t *testing.T) {
	s := start(t, t.TempDir())
	ann := s.as(track.Caller{User: "ann", Write: true})
	run := strings.Repeat("a", 32)
	ann.must("POST", "/api/2.0/berth/import/run", obj{"run_id": run, "experiment_id": "0", "status": "FINISHED", "from": "http://old"})
	ann.must("POST", "runs/delete", obj{"run_id": run})
	for _, user := range []string{"bob", "ann"} {
		sum, err := s.s.Clean(t.Context(), s.ws, user, berth.CleanStorage{Before: time.Now().Add(time.Second)})
		if err != nil || sum.Runs != map[string]int64{"ann": 1}[user] {
			t.Errorf("%s removed %d: %v", user, sum.Runs, err)
		}
	}
}

// TestFilesOfNeighboursStay: removing what is in a folder leaves the files of others whose
// names begin like it.
func TestFilesOfNeighboursStay(t *testing.T) {
	s := start(t, t.TempDir())
	ids := map[string]string{}
	for _, name := range []string{"one", "other"} {
		ids[name] = s.must("POST", "experiments/create", obj{"name": name})["experiment_id"].(string)
	}
	for _, file := range []string{"stray", "sub/stray"} {
		s.upload(ids["one"] + "/" + file)
		s.upload(ids["one"] + "0/" + file)
		s.upload(ids["one"] + "-b/" + file)
	}
	s.must("POST", "experiments/delete", obj{"experiment_id": ids["one"]})
	if _, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	s.want(http.StatusNotFound, "GET", "experiments/get?experiment_id="+ids["one"], nil)
	for _, folder := range []string{ids["one"], ids["one"] + "0", ids["one"] + "-b"} {
		want := 2
		if folder == ids["one"] {
			want = 0
		}
		err := s.db.View(t.Context(), func(tx *store.Tx) error {
			page, err := tx.ListBlobs(store.BlobQuery{Container: s.ws.Artifacts, Prefix: "mlflow/" + folder + "/"})
			if len(page) != want {
				t.Errorf("%s has %d files, want %d", folder, len(page), want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
