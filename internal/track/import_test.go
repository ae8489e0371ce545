package track_test

import (
	"maps"
	"net/http"
	"testing"
)

// TestImportedLoggedModels: a logged model is brought over with its state and with points of runs
// that are not here. What cannot be is refused before anything is written.
func TestImportedLoggedModels(t *testing.T) {
	s := start(t, t.TempDir())
	const call, id = "/api/2.0/berth/import/logged-model", "m-0123456789abcdef0123456789abcdef"
	body := func(more obj) obj {
		b := obj{"model_id": id, "experiment_id": "0", "name": "m", "from": "http://old"}
		maps.Copy(b, more)
		return b
	}
	point := func(more obj) []obj {
		b := obj{"key": "acc", "value": 0.5, "timestamp": 1, "step": 2, "run_id": "gone", "dataset_name": "d", "dataset_digest": "1"}
		maps.Copy(b, more)
		return []obj{b}
	}
	many := make([]obj, 1001)
	for i := range many {
		many[i] = point(nil)[0]
	}
	for name, more := range map[string]obj{
		"a state that is none":    {"status": "BOGUS"},
		"too many points":         {"metrics": many},
		"a point without a key":   {"metrics": point(obj{"key": nil})},
		"a point without a value": {"metrics": point(obj{"value": "x"})},
		"a run with a zero byte":  {"metrics": point(obj{"run_id": "a\x00b"})},
		"points that are none":    {"metrics": "x"},
	} {
		if code, m := s.do("POST", call, body(more)); code != http.StatusBadRequest {
			t.Errorf("%s: %d %v", name, code, m)
		}
		s.want(http.StatusNotFound, "GET", "logged-models/"+id, nil)
	}
	s.must("POST", call, body(obj{"status": "LOGGED_MODEL_UPLOAD_FAILED", "status_message": "no space", "metrics": point(nil)}))
	got := s.must("POST", call, body(obj{"status": "LOGGED_MODEL_PENDING", "metrics": point(nil)}))
	if at(got, "model", "info", "status") != "LOGGED_MODEL_PENDING" || at(got, "model", "data", "metrics", 0, "run_id") != "gone" || at(got, "model", "data", "metrics", 1) != nil {
		t.Errorf("%v", got)
	}
	if got := s.must("POST", call, body(nil)); at(got, "model", "info", "status") != "LOGGED_MODEL_READY" {
		t.Errorf("without a state: %v", got)
	}
}
