package track_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What MLflow's own tests never ask for.

// TestDeleteArtifacts: a file is deleted by its path, a folder with everything in it, and what is
// not there is deleted already.
func TestDeleteArtifacts(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	files := "/api/2.0/mlflow-artifacts/artifacts/0/" + run + "/artifacts/"
	for _, name := range []string{"a.txt", "d/b.txt", "d/e/c.txt", "dd.txt"} {
		if code, _, out := s.raw("PUT", files+name, "text/plain", name); code != http.StatusOK {
			t.Fatalf("%d %s", code, out)
		}
	}
	for _, name := range []string{"a.txt", "d", "none"} {
		if code, _, out := s.raw("DELETE", files+name, "", ""); code != http.StatusOK {
			t.Fatalf("DELETE %s: %d %s", name, code, out)
		}
	}
	l := s.must("GET", "artifacts/list?run_id="+run, nil)
	if left := l["files"].([]any); len(left) != 1 || at(left, 0, "path") != "dd.txt" {
		t.Errorf("left are %v", left)
	}
	for _, path := range []string{"../x", "%2e%2e/x", "a/%2E%2E/%2E%2E/%2E%2E/x"} {
		if code, _, out := s.raw("DELETE", "/api/2.0/mlflow-artifacts/artifacts/"+path, "", ""); code != http.StatusBadRequest {
			t.Errorf("DELETE %s: %d %s", path, code, out)
		}
	}
	if code, _, _ := s.raw("DELETE", "/api/2.0/mlflow-artifacts/artifacts/", "", ""); code != http.StatusBadRequest {
		t.Errorf("deleting everything: %d", code)
	}
}

// TestLogModelOfOldClients: what clients before 3 say of a model is a tag of its run, a list that
// grows.
func TestLogModelOfOldClients(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	model := `{"artifact_path": "m", "flavors": {}, "utc_time_created": "now", "run_id": "` + run + `"}`
	for range 2 {
		s.must("POST", "runs/log-model", obj{"run_id": run, "model_json": model})
	}
	for _, bad := range []any{nil, "", "nonsense", `{"artifact_path": "m"}`, `[]`} {
		if code, m := s.do("POST", "runs/log-model", obj{"run_id": run, "model_json": bad}); code != http.StatusBadRequest || at(m, "error_code") != "INVALID_PARAMETER_VALUE" {
			t.Errorf("%v: %d %v", bad, code, m)
		}
	}
	got := s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": "tags.`mlflow.log-model.history` LIKE '%utc_time_created%utc_time_created%'"})
	if at(got, "runs", 0, "info", "run_id") != run {
		t.Errorf("found %v", got)
	}
}

// TestSearchExperimentsByGet: GET asks the same as POST.
func TestSearchExperimentsByGet(t *testing.T) {
	s := start(t, t.TempDir())
	for _, name := range []string{"a", "b", "ab"} {
		s.must("POST", "experiments/create", obj{"name": name})
	}
	got := s.must("GET", "experiments/search?max_results=1&filter=name%20LIKE%20%27a%25%27&order_by=name%20DESC", nil)
	if at(got, "experiments", 0, "name") != "ab" || at(got, "experiments", 1) != nil {
		t.Fatalf("found %v", got)
	}
	got = s.must("GET", "experiments/search?max_results=1&filter=name%20LIKE%20%27a%25%27&order_by=name%20DESC&page_token="+got["next_page_token"].(string), nil)
	if at(got, "experiments", 0, "name") != "a" || got["next_page_token"] != nil {
		t.Fatalf("then %v", got)
	}
	for _, bad := range []string{"max_results=0", "max_results=x", "max_results=1&filter=nonsense", "max_results=1&view_type=ODD", "max_results=1&page_token=odd"} {
		if code, m := s.do("GET", "experiments/search?"+bad, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d %v", bad, code, m)
		}
	}
}

// TestGetVersionArtifact: a file of a registered version is downloaded by the version's name and
// number.
func TestGetVersionArtifact(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/"+run+"/artifacts/model/MLmodel", "text/plain", "flavors: {}"); code != http.StatusOK {
		t.Fatalf("%d %s", code, out)
	}
	s.must("POST", "registered-models/create", obj{"name": "M"})
	s.must("POST", "model-versions/create", obj{"name": "M", "source": "mlflow-artifacts:/0/" + run + "/artifacts/model", "run_id": run})
	if code, h, out := s.raw("GET", "/model-versions/get-artifact?name=M&version=1&path=MLmodel", "", ""); code != http.StatusOK || out != "flavors: {}" {
		t.Errorf("%d %v %q", code, h, out)
	}
	for query, want := range map[string]int{
		"name=M&version=1&path=none": http.StatusNotFound, "name=M&version=2&path=MLmodel": http.StatusNotFound, "name=N&version=1&path=MLmodel": http.StatusNotFound,
		"name=M&version=1&path=..%2F..%2Fx": http.StatusBadRequest, "name=M&version=1&path=%2Fetc%2Fpasswd": http.StatusBadRequest, "name=M&version=x&path=MLmodel": http.StatusBadRequest,
	} {
		if code, _, out := s.raw("GET", "/model-versions/get-artifact?"+query, "", ""); code != want {
			t.Errorf("%s: %d %s", query, code, out)
		}
	}
}

// TestRequestMustBeAnObject: JSON that is no object is refused, where it was taken for an empty
// one. An empty list still is.
func TestRequestMustBeAnObject(t *testing.T) {
	s := start(t, t.TempDir())
	for _, body := range []string{"[1]", "3", "true", `"text"`, `"3"`} {
		if code, _, answer := s.raw(http.MethodPost, "/api/2.0/mlflow/runs/search", "application/json", body); code != http.StatusBadRequest || !strings.Contains(answer, "INVALID_PARAMETER_VALUE") {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
	if code, _, answer := s.raw(http.MethodPost, "/api/2.0/mlflow/runs/search", "application/json", "[]"); code != http.StatusOK {
		t.Errorf("[]: %d %s", code, answer)
	}
}

// TestLargeBatch: a batch of what a client may send at most is accepted, although it is over a
// megabyte.
func TestLargeBatch(t *testing.T) {
	s := start(t, t.TempDir())
	id := s.newRun("0", nil)
	var params, tags []string
	for i := range 100 {
		params = append(params, fmt.Sprintf(`{"key": "p%d", "value": %q}`, i, strings.Repeat("v", 6000)))
		tags = append(tags, fmt.Sprintf(`{"key": "t%d", "value": %q}`, i, strings.Repeat("v", 5000)))
	}
	body := `{"run_id": "` + id + `", "params": [` + strings.Join(params, ",") + `], "tags": [` + strings.Join(tags, ",") + `]}`
	if code, _, answer := s.raw(http.MethodPost, "/api/2.0/mlflow/runs/log-batch", "application/json", body); code != http.StatusOK {
		t.Errorf("%d bytes: %d %s", len(body), code, answer)
	}
}
