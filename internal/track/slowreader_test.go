package track_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A reluctant client takes what it is sent and remembers the largest piece.
type reluctant struct {
	http.ResponseWriter
	largest int
}

func (w *reluctant) Write(p []byte) (int, error) {
	w.largest = max(w.largest, len(p))
	return w.ResponseWriter.Write(p)
}

// TestPagesAreSentInPieces: an answer with many things is not kept whole while a client reads it.
func TestPagesAreSentInPieces(t *testing.T) {
	s := start(t, t.TempDir())
	const each = 100_000
	var tags []obj
	for i := range each / 5000 {
		tags = append(tags, obj{"key": fmt.Sprint("t", i), "value": strings.Repeat("v", 5000)})
	}
	for i := range 20 {
		run := s.newRun("0", obj{"tags": tags})
		s.must("POST", "registered-models/create", obj{"name": fmt.Sprint("m", i), "tags": tags})
		s.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m", "source_run_id": run, "tags": tags})
		var points []obj
		for j := range 1000 {
			points = append(points, obj{"key": strings.Repeat("k", 250), "value": 1, "timestamp": j})
		}
		s.must("POST", "runs/log-batch", obj{"run_id": run, "metrics": points})
	}
	var all []string
	for _, r := range s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}})["runs"].([]any) {
		all = append(all, at(r, "info", "run_id").(string))
	}
	for _, c := range []struct{ method, path, body, list string }{
		{"POST", "runs/search", `{"experiment_ids": ["0"]}`, "runs"},
		{"POST", "logged-models/search", `{"experiment_ids": ["0"]}`, "models"},
		{"POST", "registered-models/search", `{}`, "registered_models"},
		{"GET", "metrics/get-history-bulk?metric_key=" + strings.Repeat("k", 250) + "&run_id=" + strings.Join(all, "&run_id="), "", "metrics"},
	} {
		r := httptest.NewRequest(c.method, "http://h/api/2.0/mlflow/"+c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		w := &reluctant{ResponseWriter: rec}
		s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath())
		if rec.Code != 200 || rec.Body.Len() < 20*each || !strings.HasPrefix(rec.Body.String(), `{"`+c.list+`":[{`) {
			t.Fatalf("%.40s: %d, %d bytes: %.100s", c.path, rec.Code, rec.Body.Len(), rec.Body)
		}
		if w.largest > 2*each {
			t.Errorf("%.40s: sent %d bytes of %d at once", c.path, w.largest, rec.Body.Len())
		}
	}
}

// TestLongMetricsAreSentInPieces: however many metrics a run or model has, an answer with one of
// them is not kept whole while a client reads it.
func TestLongMetricsAreSentInPieces(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", obj{"tags": []obj{{"key": "t", "value": "v"}}})
	model := at(s.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m"}), "model", "info", "model_id").(string)
	const batches, each = 4, 1000
	for i := range batches {
		var ofModel, ofRun []obj
		for j := range each {
			ofModel = append(ofModel, obj{"key": strings.Repeat("k", 250), "value": i, "timestamp": j, "model_id": model, "dataset_name": strings.Repeat("\x01", 500), "dataset_digest": strings.Repeat("d", 36)})
			ofRun = append(ofRun, obj{"key": fmt.Sprintf("%d/%d/", i, j) + strings.Repeat("k", 240), "value": 1, "timestamp": 1})
		}
		s.must("POST", "runs/log-batch", obj{"run_id": run, "metrics": ofRun})
		s.must("POST", "runs/log-batch", obj{"run_id": s.newRun("0", nil), "metrics": ofModel})
	}
	for _, c := range []struct{ method, path, body, in, id, of string }{
		{"GET", "runs/get?run_id=" + run, "", "run", "run_id", run},
		{"POST", "runs/search", `{"experiment_ids": ["0"], "filter": "tags.t = 'v'"}`, "runs", "run_id", run},
		{"GET", "logged-models/" + model, "", "model", "model_id", model},
		{"PATCH", "logged-models/" + model + "/tags", `{"tags": [{"key": "a", "value": "b"}]}`, "model", "model_id", model},
		{"POST", "logged-models/search", `{"experiment_ids": ["0"]}`, "models", "model_id", model},
	} {
		r := httptest.NewRequest(c.method, "http://h/api/2.0/mlflow/"+c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		w := &reluctant{ResponseWriter: rec}
		s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath())
		var got obj
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != 200 {
			t.Fatalf("%s: %d %v", c.path, rec.Code, err)
		}
		item := got[c.in]
		if l, ok := item.([]any); ok {
			item = l[0]
		}
		metrics, _ := at(item, "data", "metrics").([]any)
		if at(item, "info", c.id) != c.of || len(metrics) != batches*each || at(metrics[each], "timestamp") == nil {
			t.Errorf("%s: %v with %d metrics", c.path, at(item, "info"), len(metrics))
		}
		if w.largest > 256<<10 {
			t.Errorf("%s: sent %d bytes of %d at once", c.path, w.largest, rec.Body.Len())
		}
	}
}

// TestLargeAnswersWaitTheirTurn: however many clients of a user read a large answer slowly, few are
// in memory; others' are sent.
func TestLargeAnswersWaitTheirTurn(t *testing.T) {
	s := start(t, t.TempDir())
	var tags []obj
	for i := range 300 {
		tags = append(tags, obj{"key": fmt.Sprint("t", i), "value": strings.Repeat("v", 5000)})
	}
	long := s.newRun("0", obj{"tags": tags})
	experiment := s.must("POST", "experiments/create", obj{"name": "e", "tags": tags})["experiment_id"].(string)
	run := s.newRun(experiment, nil)
	s.must("POST", "runs/log-inputs", obj{"run_id": run, "datasets": []obj{{"dataset": obj{"name": "d", "digest": "1", "source_type": "local", "source": "here", "profile": strings.Repeat("p", 1<<20)}}}})
	model := at(s.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m", "tags": tags}), "model", "info", "model_id").(string)
	s.must("POST", "registered-models/create", obj{"name": "M", "tags": tags})
	for _, call := range []struct{ method, path, body string }{
		{"GET", "runs/get?run_id=" + run, ""},
		{"GET", "runs/get?run_id=" + long, ""},
		{"POST", "runs/search", `{"experiment_ids": ["` + experiment + `"]}`},
		{"POST", "runs/search", `{"experiment_ids": ["0"]}`},
		{"GET", "logged-models/" + model, ""},
		{"POST", "logged-models/search", `{"experiment_ids": ["0"]}`},
		{"GET", "experiments/get?experiment_id=" + experiment, ""},
		{"POST", "experiments/search", `{"max_results": 5}`},
		{"GET", "registered-models/get?name=M", ""},
		{"POST", "registered-models/search", "{}"},
	} {
		s.largeAnswersWait(run, call.method, call.path, call.body)
	}
}

func (s *server) largeAnswersWait(run, method, path, body string) {
	s.t.Helper()
	t := s.t
	const readers, turns = 12, 4
	began, read, ended := make(chan struct{}, readers), make(chan struct{}), make(chan struct{}, readers)
	ctx, leave := context.WithCancel(t.Context())
	for range readers {
		go func() {
			defer func() { ended <- struct{}{} }()
			r := httptest.NewRequestWithContext(ctx, method, "http://h/api/2.0/mlflow/"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			s.s.Serve(&stopped{httptest.NewRecorder(), began, read}, r, s.ws, s.who, r.URL.EscapedPath())
		}()
	}
	for range turns {
		<-began
	}
	other := *s
	other.who.User = "other"
	if got := at(other.must("GET", "runs/get?run_id="+run, nil), "run", "info", "run_id"); got != run {
		t.Error(got)
	}
	leave()
	more := 0
	for left := readers - turns; left > 0; left-- { // those that waited have gone
		select {
		case <-ended:
		case <-began:
			more++
		}
	}
	if more > 0 {
		t.Errorf("%s: %d answers were sent at a time, not %d", path, turns+more, turns)
	}
	close(read)
	for range turns + more {
		<-ended
	}
}

// stopped is a client that reads nothing before it is let.
type stopped struct {
	http.ResponseWriter
	began, read chan struct{}
}

func (w *stopped) Write(p []byte) (int, error) {
	if len(p) < 1<<19 {
		return w.ResponseWriter.Write(p)
	}
	w.began <- struct{}{}
	<-w.read
	return w.ResponseWriter.Write(p)
}
