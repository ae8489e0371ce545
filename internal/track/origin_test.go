package track_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// A made is what the code of a job made, besides its run.
type made struct{ experiment, run, model string }

// files are a file of the run and one of the model.
func (m made) files() []string {
	const at = "/api/2.0/mlflow-artifacts/artifacts/"
	return []string{at + m.experiment + "/" + m.run + "/artifacts/f", at + m.experiment + "/models/" + m.model + "/artifacts/f"}
}

// makeIn makes a run and a logged model with a file each. What a client says of its user is wrong.
func (s *server) makeIn(experiment string) made {
	s.t.Helper()
	m := made{experiment: at(s.must("GET", "experiments/get-by-name?experiment_name="+experiment, nil), "experiment", "experiment_id").(string)}
	m.run = s.newRun(m.experiment, obj{"user_id": "bob", "tags": []obj{{"key": "mlflow.user", "value": "bob"}}})
	m.model = at(s.must("POST", "logged-models", obj{"experiment_id": m.experiment, "name": "m"}), "model", "info", "model_id").(string)
	for _, f := range m.files() {
		s.wantRaw(http.StatusOK, "PUT", f)
	}
	return m
}

func (s *server) wantRaw(status int, method, path string) {
	s.t.Helper()
	if code, _, out := s.raw(method, path, "", "x"); code != status {
		s.t.Errorf("%s: %s %s: %d %s, want %d", s.who.User, method, path, code, out, status)
	}
}

// removeJob deletes a job, and with collect its run for good.
func (s *server) removeJob(name string, collect bool) {
	s.t.Helper()
	if collect {
		s.must("POST", "runs/delete", obj{"run_id": name})
	}
	err := s.db.Update(s.t.Context(), func(tx *store.Tx) error { return tx.Delete(s.ws.Key, "jobs", name, "") })
	if err != nil {
		s.t.Fatal(err)
	}
	if !collect {
		return
	}
	if n, err := s.s.Collect(s.t.Context(), time.Now().Add(time.Second)); n != 1 || err != nil {
		s.t.Fatalf("%d runs were removed: %v", n, err)
	}
}

// older makes documents as servers before wrote them, which did not keep who made something.
func (s *server) older(dir string) *server {
	s.t.Helper()
	err := s.db.Update(s.t.Context(), func(tx *store.Tx) error {
		for _, kind := range []string{"mlflow/runs", "mlflow/logged-models"} {
			docs, err := tx.All(store.Query{Workspace: s.ws.Key, Kind: kind})
			if err != nil {
				return err
			}
			for _, d := range docs {
				own := obj{}
				if err := json.Unmarshal(d.Own, &own); err != nil {
					return err
				}
				delete(own, "JobID")
				delete(own, "Maker")
				if d.Own, err = json.Marshal(own); err != nil {
					return err
				}
				if err := tx.Save(d); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.stop()
	return start(s.t, dir)
}

// mayNot wants a person to change nothing of what a job made.
func (s *server) mayNot(m made) {
	s.t.Helper()
	for _, f := range m.files() {
		s.wantRaw(http.StatusForbidden, "PUT", f)
		s.wantRaw(http.StatusForbidden, "DELETE", f)
		s.wantRaw(http.StatusOK, "GET", f)
	}
	s.want(http.StatusForbidden, "DELETE", "logged-models/"+m.model, nil)
	s.want(http.StatusForbidden, "POST", "runs/delete", obj{"run_id": m.run})
	s.want(http.StatusForbidden, "POST", "experiments/delete", obj{"experiment_id": m.experiment})
}

// jobMayNot wants the token of a job to write to nothing of what another job made, nor to see its
// runs.
func (s *server) jobMayNot(m made) {
	s.t.Helper()
	for _, f := range m.files() {
		s.wantRaw(http.StatusForbidden, "PUT", f)
		s.wantRaw(http.StatusForbidden, "DELETE", f)
	}
	s.want(http.StatusForbidden, "PATCH", "logged-models/"+m.model+"/tags", obj{"tags": []obj{{"key": "k", "value": "v"}}})
	s.want(http.StatusForbidden, "PATCH", "logged-models/"+m.model, obj{"status": "LOGGED_MODEL_READY"})
	s.want(http.StatusForbidden, "POST", "runs/log-metric", obj{"run_id": s.who.Job, "key": "acc", "value": 1, "timestamp": 1, "model_id": m.model})
	s.want(http.StatusForbidden, "POST", "runs/log-batch", obj{"run_id": m.run, "tags": []obj{{"key": "k", "value": "v"}}})
	s.want(http.StatusForbidden, "GET", "runs/get?run_id="+m.run, nil)
	found, _ := s.must("POST", "runs/search", obj{"experiment_ids": []string{m.experiment}})["runs"].([]any)
	for i := range found {
		if at(found, i, "info", "run_id") == m.run {
			s.t.Errorf("the search of job %s of %s finds run %s", s.who.Job, s.who.User, m.run)
		}
	}
}

// may wants a person to change what a job made, and to delete it.
func (s *server) may(m made) {
	s.t.Helper()
	for _, f := range m.files() {
		s.wantRaw(http.StatusOK, "PUT", f)
		s.wantRaw(http.StatusOK, "DELETE", f)
	}
	s.want(http.StatusOK, "DELETE", "logged-models/"+m.model, nil)
	s.want(http.StatusOK, "POST", "runs/delete", obj{"run_id": m.run})
}

// TestNewJobTakesNothingOver: what the code of a job made outlives its run. A later job of the same
// name, of somebody else, is another job.
func TestNewJobTakesNothingOver(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	m := s.as(s.addJob("train", "ann", "shared")).makeIn("shared")
	ann.removeJob("train", true)
	err := s.db.View(t.Context(), func(tx *store.Tx) error { return track.CheckJob(tx, s.ws.Key, "train", "bob") })
	if err != nil {
		t.Fatal(err)
	}
	bob.mayNot(m)
	job := s.as(s.addJob("train", "bob", "shared"))
	bob.mayNot(m)
	job.jobMayNot(m)
	bobs := job.makeIn("shared") // its own are
	bob.may(bobs)
	ann.may(m)
}

// TestJobOfSameNameIsAnother: also of the same user. The run is of both, and what either made of
// that one.
func TestJobOfSameNameIsAnother(t *testing.T) {
	s := start(t, t.TempDir())
	ann := s.as(track.Caller{User: "ann", Write: true})
	m := s.as(s.addJob("train", "ann", "shared")).makeIn("shared")
	ann.removeJob("train", false)
	job := s.as(s.addJob("train", "ann", "shared"))
	job.must("GET", "runs/get?run_id=train", nil)
	job.jobMayNot(m)
	ann.may(m)
}

// TestNewJobTakesNothingOverOfOlder: of what servers before wrote, too. What nobody is known to
// have made is left to administrators.
func TestNewJobTakesNothingOverOfOlder(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	token := s.addJob("train", "ann", "shared")
	first, second := s.as(token).makeIn("shared"), s.as(token).makeIn("shared")
	s = s.older(dir)
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	for _, f := range first.files() {
		s.as(token).wantRaw(http.StatusOK, "PUT", f) // the job goes on
	}
	bob.mayNot(first)
	ann.may(first)
	ann.must("POST", "runs/restore", obj{"run_id": first.run})
	ann.removeJob("train", false)
	bob.mayNot(second) // the job's run says whose they are
	ann.want(http.StatusOK, "POST", "runs/delete", obj{"run_id": second.run})
	ann.must("POST", "runs/restore", obj{"run_id": second.run})
	job := s.as(s.addJob("train", "bob", "shared"))
	bob.mayNot(second)
	job.jobMayNot(second)
}

// TestOlderOfNobody: the job and its run are gone, and neither says whose it was.
func TestOlderOfNobody(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	m := s.as(s.addJob("train", "ann", "shared")).makeIn("shared")
	s.as(track.Caller{User: "ann", Write: true}).removeJob("train", true)
	s = s.older(dir)
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	job := s.as(s.addJob("train", "bob", "shared"))
	job.must("GET", "runs/get?run_id=train", nil)
	for range 2 { // the job of bob is there, then only its run
		bob.mayNot(m)
		ann.mayNot(m)
		if job != nil {
			job.jobMayNot(m)
			bob.removeJob("train", false)
			job = nil
		}
	}
	s.as(track.Caller{User: "root", Write: true, Admin: true}).may(m)
}
