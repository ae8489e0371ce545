package track_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// TestNameOfJobUsedAgain: a job has the name of one that was deleted, of somebody else. Its files
// are its user's, and a new job does not get such a name.
func TestNameOfJobUsedAgain(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	s.addJob("train", "ann", "mine")
	uri := at(ann.must("GET", "runs/get?run_id=train", nil), "run", "info", "artifact_uri").(string)
	path := "/api/2.0/mlflow-artifacts/artifacts/" + uri[len("mlflow-artifacts:/"):] + "/f"
	put := func(s *server, want int) {
		t.Helper()
		if code, _, out := s.raw("PUT", path, "", "x"); code != want {
			t.Errorf("%s: %d %s, want %d", s.who.User, code, out, want)
		}
	}
	put(ann, http.StatusOK)
	put(bob, http.StatusForbidden)
	err := s.db.Update(t.Context(), func(tx *store.Tx) error { return tx.Delete(s.ws.Key, "jobs", "train", "") })
	if err != nil {
		t.Fatal(err)
	}
	put(ann, http.StatusOK)
	put(bob, http.StatusForbidden)
	for _, name := range []string{"train", "Train"} {
		if err := s.checkJob(name, "bob"); berth.CodeOf(err) != berth.Conflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.checkJob("train", "ann"); err != nil {
		t.Error(err)
	}
	if err := s.checkJob("other", "bob"); err != nil {
		t.Error(err)
	}
	s.addJob("train", "bob", "mine") // as a server before did, and steps of pipelines have
	put(bob, http.StatusOK)
	put(ann, http.StatusForbidden)
}

// checkJob asks whether a user may give a new job a name.
func (s *server) checkJob(name, user string) error {
	s.t.Helper()
	return s.db.View(s.t.Context(), func(tx *store.Tx) error { return track.CheckJob(tx, s.ws.Key, name, user) })
}

// TestUserOfClientsCountsForNothing: user_id, tags and what an import says of its user give nobody
// the name of a run, nor what a job made.
func TestUserOfClientsCountsForNothing(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	const name = "0123456789abcdef0123456789abcdef" // an id that an import may bring
	claim := func(id, status string) obj {
		return obj{"run_id": id, "experiment_id": "0", "user_id": "bob", "status": status, "from": "there", "tags": []obj{{"key": "mlflow.user", "value": "bob"}}}
	}
	ann := s.as(track.Caller{User: "ann", Write: true})
	plain := ann.newRun("0", obj{"user_id": "bob"})
	brought := "f" + name[1:]
	ann.must("POST", "/api/2.0/berth/import/run", claim(brought, "FINISHED"))
	nested := s.as(s.addJob("train", "ann", "Default")).newRun("0", obj{"user_id": "bob"})
	for range 2 { // as this server wrote them, and as servers before
		for _, id := range []string{plain, brought, nested} {
			if err := s.checkJob(id, "bob"); berth.CodeOf(err) != berth.Conflict {
				t.Errorf("bob may call a job as a run of ann: %v", err)
			}
		}
		s = s.older(dir)
	}

	ann = s.as(ann.who)
	bob := s.as(track.Caller{User: "bob", Write: true})
	m := s.as(s.addJob(name, "ann", "shared")).makeIn("shared")
	ann.removeJob(name, true)
	bob.must("POST", "/api/2.0/berth/import/run", claim(name, "RUNNING"))
	bob.mayNot(m)
	s = s.older(dir)
	s.as(bob.who).mayNot(m)
}

// TestImportLeavesJobsTheirNames: names of jobs are compared without case, and a run with the name
// of a job would be in the way of the job's.
func TestImportLeavesJobsTheirNames(t *testing.T) {
	s := start(t, t.TempDir())
	const id = "abcdef0123456789abcdef0123456789"
	name := strings.ToUpper(id)
	job, bob := s.as(s.addJob(name, "ann", "mine")), s.as(track.Caller{User: "bob", Write: true})
	bob.want(http.StatusBadRequest, "POST", "/api/2.0/berth/import/run", obj{"run_id": id, "experiment_id": "0", "status": "RUNNING", "from": "there"})
	job.must("GET", "runs/get?run_id="+name, nil)
	bob.want(http.StatusBadRequest, "POST", "/api/2.0/berth/import/run", obj{"run_id": id, "experiment_id": "0", "status": "RUNNING", "from": "there"})
}

// TestJobsAndModelsShareNoPoints: points are kept by the ID of a run or logged model, whichever has
// it. No job gets an ID of models, and no model that of a job.
func TestJobsAndModelsShareNoPoints(t *testing.T) {
	s := start(t, t.TempDir())
	ann := s.as(track.Caller{User: "ann", Write: true})
	model := at(ann.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m"}), "model", "info", "model_id").(string)
	for _, name := range []string{model, strings.ToUpper(model), "m-0123456789abcdef0123456789ABCDEF"} {
		for _, user := range []string{"ann", "bob"} {
			if err := s.checkJob(name, user); berth.CodeOf(err) != berth.Conflict {
				t.Errorf("%s may call a job %s: %v", user, name, err)
			}
		}
	}
	for _, name := range []string{"m-0123456789abcdef", "m-0123456789abcdef0123456789abcdefg", "x" + model} {
		if err := s.checkJob(name, "ann"); err != nil {
			t.Error(err)
		}
	}
	const before = "m-0123456789abcdef0123456789abcdef" // a job that there was before
	s.addJob(before, "ann", "mine")
	bring := func(want int) {
		t.Helper()
		ann.want(want, "POST", "/api/2.0/berth/import/logged-model", obj{"model_id": before, "name": "m", "experiment_id": "0", "from": "there"})
	}
	bring(http.StatusBadRequest)
	ann.must("GET", "runs/get?run_id="+before, nil)
	bring(http.StatusBadRequest)
	ann.removeJob(before, false)
	bring(http.StatusBadRequest)
	s.addJob(before, "ann", "mine")
	ann.removeJob(before, true)
	bring(http.StatusOK)
}

// TestOthersJobsAreNotDeleted: what is deleted is removed with its files later.
func TestOthersJobsAreNotDeleted(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	job := s.as(s.addJob("train", "ann", "mine"))
	exp := at(job.must("GET", "experiments/get-by-name?experiment_name=mine", nil), "experiment", "experiment_id").(string)
	model := at(job.must("POST", "logged-models", obj{"experiment_id": exp, "name": "m"}), "model", "info", "model_id").(string)
	run := at(job.must("POST", "runs/create", obj{"experiment_id": exp}), "run", "info", "run_id").(string)
	bobs := at(bob.must("POST", "runs/create", obj{"experiment_id": exp}), "run", "info", "run_id").(string)
	for _, id := range []string{run, "train"} {
		bob.want(http.StatusForbidden, "POST", "runs/delete", obj{"run_id": id})
	}
	bob.want(http.StatusForbidden, "DELETE", "logged-models/"+model, nil)
	bob.want(http.StatusForbidden, "POST", "experiments/delete", obj{"experiment_id": exp})
	if r := bob.must("GET", "runs/get?run_id="+bobs, nil); at(r, "run", "info", "lifecycle_stage") != "active" {
		t.Errorf("half deleted: %v", r)
	}
	ann.must("POST", "runs/delete", obj{"run_id": bobs}) // nobody's job made it
	ann.must("POST", "runs/delete", obj{"run_id": run})
	ann.must("DELETE", "logged-models/"+model, nil)
	bob.must("POST", "runs/restore", obj{"run_id": run})
	s.as(track.Caller{User: "root", Write: true, Admin: true}).must("POST", "experiments/delete", obj{"experiment_id": exp})
}
