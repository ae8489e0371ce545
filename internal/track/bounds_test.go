package track_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/track"
)

// TestFullWorkspaceTakesNoFiles: not in parts and not at signed addresses either, and what is there
// can be deleted.
func TestFullWorkspaceTakesNoFiles(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	file := "/api/2.0/mlflow-artifacts/artifacts/0/" + run + "/artifacts/f"
	upload := func(want int) {
		t.Helper()
		s.wantRaw(want, "PUT", file)
		s.wantRaw(want, "POST", "/ajax-api/2.0/mlflow/upload-artifact?path=f&run_uuid="+run)
		s.want(want, "POST", "/api/2.0/mlflow-artifacts/mpu/create/0/"+run+"/artifacts", obj{"path": "f", "num_parts": 1})
		s.want(want, "POST", "/"+track.HistoryPath+run+"/artifacts/batch/metadata", obj{"paths": []obj{{"path": "f"}}})
		s.want(want, "POST", "runs/log-metric", obj{"run_id": run, "key": "loss", "value": 1, "timestamp": 1})
	}
	upload(200)
	s.who.Full = func(context.Context) error { return berth.Errorf(berth.Limit, "it is full") }
	upload(400)
	s.wantRaw(200, "DELETE", file)
}

// TestTextsAreBounded: what is kept in memory of a run, a model or a metric has a limit.
func TestTextsAreBounded(t *testing.T) {
	s := start(t, t.TempDir())
	long := strings.Repeat("x", 200_000)
	run := s.newRun("0", nil)
	model := at(s.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m"}), "model", "info", "model_id").(string)
	s.must("POST", "registered-models/create", obj{"name": "M"})
	s.must("POST", "model-versions/create", obj{"name": "M", "source": "s3://b/x"})
	s.want(400, "POST", "runs/create", obj{"experiment_id": "0", "run_name": long})
	s.want(400, "POST", "runs/create", obj{"experiment_id": "0", "user_id": long})
	s.want(400, "POST", "runs/update", obj{"run_id": run, "run_name": long})
	s.want(400, "POST", "registered-models/create", obj{"name": "N", "description": long})
	s.want(400, "PATCH", "registered-models/update", obj{"name": "M", "description": long})
	s.want(400, "POST", "model-versions/create", obj{"name": "M", "source": "s3://b/x", "description": long})
	s.want(400, "POST", "model-versions/create", obj{"name": "M", "source": "s3://b/" + long})
	s.want(400, "PATCH", "model-versions/update", obj{"name": "M", "version": "1", "description": long})
	version := func(more obj) obj {
		b := obj{"name": "M", "source": "s3://b/x"}
		maps.Copy(b, more)
		return b
	}
	const theirRun, theirModel = "0123456789abcdef0123456789abcdef", "m-0123456789abcdef0123456789abcdef"
	dataset := func(more obj) obj {
		d := obj{"name": "d", "digest": "1", "source_type": "local", "source": "x"}
		maps.Copy(d, more)
		return obj{"run_id": run, "datasets": []obj{{"dataset": d}}}
	}
	foreignRun := func(more obj) obj {
		b := obj{"run_id": theirRun, "experiment_id": "0", "status": "FINISHED", "from": "x"}
		maps.Copy(b, more)
		return b
	}
	foreignModel := func(more obj) obj {
		b := obj{"model_id": theirModel, "experiment_id": "0", "name": "x", "from": "x"}
		maps.Copy(b, more)
		return b
	}
	for _, c := range []struct {
		path string
		body func(obj) obj
		more obj
	}{
		{"model-versions/create", version, obj{"run_id": long}},
		{"model-versions/create", version, obj{"model_id": long}},
		{"logged-models", func(m obj) obj { m["experiment_id"] = "0"; return m }, obj{"model_type": long}},
		{"logged-models", func(m obj) obj { m["experiment_id"] = "0"; return m }, obj{"source_run_id": long}},
		{"runs/log-inputs", dataset, obj{"source_type": long}},
		{"runs/log-inputs", func(m obj) obj { return obj{"run_id": run, "models": []obj{m}} }, obj{"model_id": long}},
		{"runs/outputs", func(m obj) obj { return obj{"run_id": run, "models": []obj{m}} }, obj{"model_id": long}},
		{"/api/2.0/berth/import/run", foreignRun, obj{"from": long}},
		{"/api/2.0/berth/import/run", foreignRun, obj{"run_name": long}},
		{"/api/2.0/berth/import/logged-model", foreignModel, obj{"from": long}},
		{"/api/2.0/berth/import/logged-model", foreignModel, obj{"name": long}},
		{"/api/2.0/berth/import/logged-model", foreignModel, obj{"model_type": long}},
		{"/api/2.0/berth/import/logged-model", foreignModel, obj{"source_run_id": long}},
	} {
		m := s.want(400, "POST", c.path, c.body(c.more))
		if text, _ := at(m, "message").(string); at(m, "error_code") != "INVALID_PARAMETER_VALUE" || !strings.Contains(text, "exceeds the maximum length of") {
			t.Errorf("%s: %v", c.path, m)
		}
	}
	s.must("POST", "runs/log-inputs", dataset(nil))
	s.must("POST", "/api/2.0/berth/import/run", foreignRun(nil))
	s.must("POST", "/api/2.0/berth/import/logged-model", foreignModel(nil))
	for _, field := range []string{"dataset_name", "dataset_digest"} {
		metric := obj{"key": "k", "value": 1, "timestamp": 1, "model_id": model, field: strings.Repeat("x", 501)}
		s.want(400, "POST", "runs/log-batch", obj{"run_id": run, "metrics": []obj{metric}})
		first := obj{"key": "k", "value": 1, "timestamp": 1, "model_id": model}
		s.want(400, "POST", "runs/log-batch", obj{"run_id": run, "metrics": []obj{first, metric}})
		nul := obj{"key": "k", "value": 1, "timestamp": 1, "model_id": model, field: "a\x00b"}
		s.want(400, "POST", "runs/log-batch", obj{"run_id": run, "metrics": []obj{first, nul}})
		metric["run_id"] = run
		s.want(400, "POST", "runs/log-metric", metric)
	}
}

// logMany logs thousands of points to a run, and to a model where there is one.
func (s *server) logMany(run, model string, thousands int) {
	s.t.Helper()
	for b := range thousands {
		var metrics []obj
		for i := range 1000 {
			metrics = append(metrics, obj{"key": "m", "value": i, "timestamp": b*1000 + i, "step": b*1000 + i, "model_id": model})
		}
		s.must("POST", "runs/log-batch", obj{"run_id": run, "metrics": metrics})
	}
}

// A stuckWriter is a client that reads nothing until it is let go.
type stuckWriter struct {
	*httptest.ResponseRecorder
	once       sync.Once
	stuck, end chan struct{}
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.stuck) })
	<-w.end
	return w.ResponseRecorder.Write(b)
}

// TestSlowClientTakesNoTurn: clients that do not read long histories they asked for, whole or as a
// stream, keep nobody from reading them.
func TestSlowClientTakesNoTurn(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	s.logMany(run, "", 11)
	s.must("POST", "runs/update", obj{"run_id": run, "status": "FINISHED"})
	end := make(chan struct{})
	var all sync.WaitGroup
	for i := range 12 {
		path := "/api/2.0/mlflow/metrics/get-history?metric_key=m&run_id=" + run
		if i%2 > 0 {
			path = "/api/2.0/berth/metrics/stream?run_id=" + run
		}
		w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), stuck: make(chan struct{}), end: end}
		all.Go(func() {
			s.s.Serve(w, httptest.NewRequest("GET", "http://h"+path, nil), s.ws, s.who, path[:strings.Index(path, "?")])
			if n := strings.Count(w.Body.String(), `"key":"m"`); n != 11_000 {
				t.Errorf("%d points of %s", n, path)
			}
		})
		<-w.stuck
	}
	for _, path := range []string{"get-history?run_id=", "get-history-bulk?run_id=", "get-history-bulk-interval?run_ids="} {
		s.must("GET", "metrics/"+path+run+"&metric_key=m", nil)
	}
	close(end)
	all.Wait()
}

// TestHistoryBreaksOff: a history that cannot be read to its end does not look whole.
func TestHistoryBreaksOff(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	s.logMany(run, "", 11)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath()) }))
	defer web.Close()
	certain := 3
	s.s.Leads = func() bool { certain--; return certain >= 0 }
	res, err := http.Get(web.URL + "/api/2.0/mlflow/metrics/get-history?metric_key=m&run_id=" + run)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err == nil || res.StatusCode != http.StatusOK {
		t.Errorf("%d: %d bytes that look whole", res.StatusCode, len(b))
	}
}

// TestPointsOfModelsAreBounded: an answer about logged models has a number of points at most, and
// the latest of those that are left out.
func TestPointsOfModelsAreBounded(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	var ids []string
	for range 3 {
		id := at(s.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m"}), "model", "info", "model_id").(string)
		s.logMany(run, id, 10)
		ids = append(ids, id)
	}
	if n := len(at(s.must("GET", "logged-models/"+ids[0], nil), "model", "data", "metrics").([]any)); n != 10_000 {
		t.Errorf("%d points of one model", n)
	}
	found := s.must("POST", "logged-models/search", obj{"experiment_ids": []string{"0"}})
	var sizes []int
	for _, m := range found["models"].([]any) {
		metrics := at(m, "data", "metrics").([]any)
		sizes = append(sizes, len(metrics))
		if last := at(metrics[len(metrics)-1], "step"); last != 9999.0 {
			t.Errorf("the last point is that of step %v", last)
		}
	}
	if !slices.Equal(sizes, []int{10_000, 10_000, 1}) {
		t.Errorf("points of models: %v", sizes)
	}
}

// TestHistoryOfSeveralRuns: a run that is named twice is answered once, and many requests for long
// histories at once are all answered.
func TestHistoryOfSeveralRuns(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	s.logMany(run, "", 11)
	got := s.must("GET", "metrics/get-history-bulk?metric_key=m&run_id="+run+"&run_id="+run, nil)
	if n := len(got["metrics"].([]any)); n != 11_000 {
		t.Errorf("%d points", n)
	}
	var steps, pages int
	for token := ""; pages == 0 || token != ""; pages++ {
		got := s.must("GET", "metrics/get-history?metric_key=m&max_results=4095&run_id="+run+"&page_token="+url.QueryEscape(token), nil)
		for _, p := range got["metrics"].([]any) {
			if at(p, "step") != float64(steps) {
				t.Fatalf("step %v comes after %d steps", at(p, "step"), steps)
			}
			steps++
		}
		token, _ = got["next_page_token"].(string)
	}
	if steps != 11_000 || pages != 3 {
		t.Errorf("%d steps on %d pages", steps, pages)
	}
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			_, _, out := s.raw("GET", "/api/2.0/mlflow/metrics/get-history?metric_key=m&run_id="+run, "", "")
			if n := strings.Count(out, `"key":"m"`); n != 11_000 || !strings.HasPrefix(out, `{"metrics":[{`) || !strings.HasSuffix(out, "}]}") {
				t.Errorf("%d points", n)
			}
		})
	}
	all.Wait()
}

// TestHistoryPagesMissNothing: an earlier point that is logged while pages are read moves the
// others on, as with MLflow, and none of those that were there is missed.
func TestHistoryPagesMissNothing(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	log := func(timestamp int) {
		s.must("POST", "runs/log-metric", obj{"run_id": run, "key": "m", "value": 1, "timestamp": timestamp})
	}
	for i := range 5 {
		log(10 * i)
	}
	var got []any
	for token, first := "", true; first || token != ""; first = false {
		page := s.must("GET", "metrics/get-history?metric_key=m&max_results=2&run_id="+run+"&page_token="+url.QueryEscape(token), nil)
		for _, p := range page["metrics"].([]any) {
			got = append(got, at(p, "timestamp"))
		}
		token, _ = page["next_page_token"].(string)
		if first {
			log(5)
		}
	}
	if want := []any{0.0, 10.0, 10.0, 20.0, 30.0, 40.0}; !slices.Equal(got, want) {
		t.Errorf("pages have %v, not %v", got, want)
	}
}
