package track_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/track"
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

// TestPointsOfImportedModels: points are added to a logged model that the caller imported, without
// its document, and nothing is written in a workspace that is full.
func TestPointsOfImportedModels(t *testing.T) {
	s := start(t, t.TempDir())
	const call, id = "/api/2.0/berth/import/logged-model", "m-0123456789abcdef0123456789abcdef"
	document := obj{"model_id": id, "experiment_id": "0", "name": "m", "from": "http://old"}
	point := func(step int) obj {
		return obj{"model_id": id, "metrics": []obj{{"key": "acc", "value": 0.5, "timestamp": 1, "step": step, "run_id": "gone"}}}
	}
	s.who.Full = func(context.Context) error { return berth.Errorf(berth.Limit, "it is full") }
	with := point(1)
	maps.Copy(with, document)
	s.want(http.StatusBadRequest, "POST", call, with)
	s.want(http.StatusBadRequest, "POST", call, document)
	s.want(http.StatusNotFound, "GET", "logged-models/"+id, nil)
	full := s.who.Full
	s.who.Full = nil
	s.must("POST", call, document)
	s.who.Full = full
	s.want(http.StatusBadRequest, "POST", call+"-metrics", point(1))
	s.who.Full = nil
	for _, step := range []int{1, 2, 2} {
		s.must("POST", call+"-metrics", point(step))
	}
	if m := s.must("GET", "logged-models/"+id, nil); at(m, "model", "data", "metrics", 1, "run_id") != "gone" || at(m, "model", "data", "metrics", 2) != nil {
		t.Errorf("%v", m)
	}
	s.want(http.StatusBadRequest, "POST", call+"-metrics", obj{"model_id": id, "metrics": "x"})
	s.want(http.StatusNotFound, "POST", call+"-metrics", obj{"model_id": "m-1", "metrics": point(1)["metrics"]})
	own := at(s.must("POST", "logged-models", obj{"experiment_id": "0", "name": "own"}), "model", "info", "model_id")
	s.want(http.StatusBadRequest, "POST", call+"-metrics", obj{"model_id": own, "metrics": point(1)["metrics"]})
	s.must("DELETE", "logged-models/"+id, nil)
	s.want(http.StatusBadRequest, "POST", call+"-metrics", point(3))
}

// TestTooLargeToImport: what is too large is named as people know it.
func TestTooLargeToImport(t *testing.T) {
	s := start(t, t.TempDir())
	const id, call = "0123456789abcdef0123456789abcdef", "/api/2.0/berth/import/"
	var tags []obj
	for i := range 1000 {
		tags = append(tags, obj{"key": fmt.Sprint("k", i), "value": strings.Repeat("x", 5000)})
	}
	s.must("POST", "registered-models/create", obj{"name": "clf", "tags": []obj{{"key": "berth.imported_from", "value": "http://old"}}})
	for path, c := range map[string]struct {
		body obj
		says string
	}{
		"experiments/create":       {obj{"name": "big"}, "experiment big"},
		"registered-models/create": {obj{"name": "big"}, "model big"},
		call + "run":               {obj{"run_id": id, "experiment_id": "0", "status": "FINISHED"}, "run " + id},
		call + "logged-model":      {obj{"model_id": "m-" + id, "experiment_id": "0", "name": "m"}, "logged model m-" + id},
		call + "model-version":     {obj{"name": "clf", "version": "3", "source": "s3://b/x"}, "version 3 of model clf"},
	} {
		c.body["from"], c.body["tags"] = "http://old", tags
		got := s.want(http.StatusBadRequest, "POST", path, c.body)
		if words := fmt.Sprint(got["message"]); !strings.HasPrefix(words, c.says+" has more than 2 MiB") {
			t.Errorf("%s: %s", path, words)
		}
	}
}

// TestImportFromAnotherSource: what was imported is changed by its source only, also where an
// administrator imports something else that has its id, and stays its importer's.
func TestImportFromAnotherSource(t *testing.T) {
	s := start(t, t.TempDir())
	const run, model = "0123456789abcdef0123456789abcdef", "m-0123456789abcdef0123456789abcdef"
	ann := s.as(track.Caller{User: "ann", Write: true})
	root := s.as(track.Caller{User: "root", Write: true, Admin: true})
	bring := func(who *server, status int, from, name string) {
		t.Helper()
		for call, body := range map[string]obj{
			"run":          {"run_id": run, "run_name": name, "status": "FINISHED"},
			"logged-model": {"model_id": model, "name": name},
		} {
			maps.Copy(body, obj{"experiment_id": "0", "from": from})
			m := who.want(status, "POST", "/api/2.0/berth/import/"+call, body)
			if status != http.StatusOK && !strings.Contains(fmt.Sprint(m["message"]), "was imported from http://old; another source cannot change it") {
				t.Errorf("%s: %v", call, m)
			}
		}
	}
	bring(ann, 200, "http://old", "first")
	bring(root, 400, "http://new", "second")
	bring(ann, 400, "http://new", "second")
	bring(root, 200, "http://old", "third")
	bring(ann, 200, "http://old", "fourth") // it is hers still
	if got := ann.must("GET", "runs/get?run_id="+run, nil); at(got, "run", "info", "run_name") != "fourth" {
		t.Errorf("%v", got)
	}
}

// TestImportAnswersWithoutDatasets: who imports a run again is told where its files go, and not all
// that it has.
func TestImportAnswersWithoutDatasets(t *testing.T) {
	s := start(t, t.TempDir())
	const run, call = "0123456789abcdef0123456789abcdef", "/api/2.0/berth/import/run"
	document := obj{"run_id": run, "experiment_id": "0", "status": "FINISHED", "from": "http://old"}
	s.must("POST", call, document)
	s.must("POST", "runs/log-inputs", obj{"run_id": run, "datasets": []obj{{"dataset": obj{"name": "d", "digest": "1", "source_type": "x", "source": strings.Repeat("x", 20_000)}}}})
	m := s.must("POST", call, document)
	if at(m, "run", "info", "artifact_uri") != "mlflow-artifacts:/0/"+run+"/artifacts" || at(m, "run", "inputs") != nil {
		t.Errorf("%.500s", fmt.Sprint(m))
	}
	if got := s.must("GET", "runs/get?run_id="+run, nil); at(got, "run", "inputs", "dataset_inputs", 0, "dataset", "name") != "d" {
		t.Errorf("%.500s", fmt.Sprint(got))
	}
}
