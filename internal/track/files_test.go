package track_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/track"
)

// TestFilesOfJobsOfOthers: the files of a job, and of the runs and models that it made, are changed
// by its user and administrators.
func TestFilesOfJobsOfOthers(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	admin := s.as(track.Caller{User: "root", Write: true, Admin: true})
	job := s.as(s.addJob("train", "ann", "mine"))
	exp := at(job.must("GET", "experiments/get-by-name?experiment_name=mine", nil), "experiment", "experiment_id").(string)
	nested := job.newRun(exp, obj{"user_id": "bob"})
	model := at(job.must("POST", "logged-models", obj{"experiment_id": exp, "name": "m"}), "model", "info", "model_id").(string)
	call := func(who *server, method, path string) int {
		code, _, _ := who.raw(method, "/api/2.0/mlflow-artifacts/artifacts/"+path, "", "bytes")
		return code
	}
	files := []string{exp + "/train/artifacts/f", exp + "/" + nested + "/artifacts/f", exp + "/models/" + model + "/artifacts/model.pkl"}
	for _, f := range files {
		if code := call(job, "PUT", f); code != 200 {
			t.Fatalf("the job cannot write %s: %d", f, code)
		}
		if put, del := call(bob, "PUT", f), call(bob, "DELETE", f); put != 403 || del != 403 {
			t.Errorf("bob wrote %s: %d, deleted it: %d", f, put, del)
		}
		if code := call(ann, "PUT", f); code != 200 {
			t.Errorf("ann cannot write %s: %d", f, code)
		}
		bob.want(403, "POST", "/api/2.0/mlflow-artifacts/mpu/create/"+f[:strings.LastIndex(f, "/")], obj{"path": "f", "num_parts": 1})
	}
	for _, folder := range []string{exp, exp + "/models", exp + "/models/" + model} {
		if code := call(bob, "DELETE", folder); code != 403 {
			t.Errorf("bob deleted %s: %d", folder, code)
		}
	}
	for _, call := range []string{"create", "complete"} {
		body := func(name string) obj {
			return obj{"path": name, "num_parts": 1, "upload_id": "u", "parts": []obj{{"part_number": 1}}}
		}
		bob.want(403, "POST", "/api/2.0/mlflow-artifacts/mpu/"+call+"/"+exp, body("models"))
		bob.want(403, "POST", "/api/2.0/mlflow-artifacts/mpu/"+call+"/"+exp, body("train"))
		bob.want(400, "POST", "/api/2.0/mlflow-artifacts/mpu/"+call+"/"+exp, body("."))
		bob.want(400, "POST", "/api/2.0/mlflow-artifacts/mpu/"+call+"/"+exp, body("models/"))
		ann.want(400, "POST", "/api/2.0/mlflow-artifacts/mpu/"+call+"/"+exp+"/train", body("artifacts"))
	}
	for _, f := range files {
		if code := call(bob, "GET", f); code != 200 {
			t.Errorf("%s is gone: %d", f, code)
		}
	}
	if code := call(admin, "DELETE", exp+"/models/"+model+"/artifacts"); code != 200 {
		t.Errorf("an administrator cannot delete: %d", code)
	}
	mine := at(bob.must("POST", "logged-models", obj{"experiment_id": exp, "name": "b"}), "model", "info", "model_id").(string)
	if put, del := call(bob, "PUT", exp+"/models/"+mine+"/artifacts/f"), call(ann, "DELETE", exp+"/models/"+mine); put != 200 || del != 200 {
		t.Errorf("a model of no job: %d %d", put, del)
	}
}

// TestRegistrationLeavesOthersFiles: whoever registers a folder of another's files does not keep
// their owner from writing them.
func TestRegistrationLeavesOthersFiles(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	run := ann.newRun("0", nil)
	put := func(content string) {
		t.Helper()
		if code, _, out := ann.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/"+run+"/artifacts/model/MLmodel", "", content); code != 200 {
			t.Errorf("%d %s", code, out)
		}
	}
	put("first")
	bob.must("POST", "registered-models/create", obj{"name": "M"})
	bob.must("POST", "model-versions/create", obj{"name": "M", "source": "mlflow-artifacts:/0/" + run + "/artifacts/model"})
	put("second")
}

// TestPageUploadIsWhole: a file that is larger than MLflow's page may upload is refused, whether or
// not its size is known before.
func TestPageUploadIsWhole(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	for _, known := range []bool{true, false} {
		r := httptest.NewRequest("POST", "http://h/ajax-api/2.0/mlflow/upload-artifact?path=big&run_uuid="+run, strings.NewReader(strings.Repeat("x", 12<<20)))
		if !known {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath())
		if w.Code != 400 || !strings.Contains(w.Body.String(), "Max size is 10MB") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if code, _, _ := s.raw("GET", "/get-artifact?path=big&run_id="+run, "", ""); code != http.StatusNotFound {
			t.Errorf("a part of the file was kept: %d", code)
		}
	}
}

// TestFilesOfVersionOfRun: the files of a version that names a run are sent, and to a job no more
// of them than by their own address.
func TestFilesOfVersionOfRun(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	for _, name := range []string{"model/MLmodel", "secret"} {
		s.wantRaw(http.StatusOK, "PUT", "/api/2.0/mlflow-artifacts/artifacts/0/"+run+"/artifacts/"+name)
	}
	s.must("POST", "registered-models/create", obj{"name": "M"})
	for _, source := range []string{"runs:/" + run + "/model", "runs:/" + run, "runs:/none/model"} {
		s.must("POST", "model-versions/create", obj{"name": "M", "source": source})
	}
	job := s.as(s.addJob("train", "ann", "mine"))
	const get = "/model-versions/get-artifact?name=M&version="
	s.wantRaw(http.StatusOK, "GET", get+"1&path=MLmodel")
	job.wantRaw(http.StatusOK, "GET", get+"1&path=MLmodel")
	s.wantRaw(http.StatusNotFound, "GET", get+"1&path=secret")
	s.wantRaw(http.StatusBadRequest, "GET", get+"1&path=../secret")
	s.wantRaw(http.StatusOK, "GET", get+"2&path=secret")
	s.wantRaw(http.StatusNotFound, "GET", get+"3&path=MLmodel")
}
