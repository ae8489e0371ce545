package track_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// ofTests is the workspace of all tests.
var ofTests = berth.Workspace{Subscription: "s", Group: "g", Name: "w"}

type obj = map[string]any

// server is the tracking of one workspace, in a directory that can be opened again.
type server struct {
	t    testing.TB
	dir  string
	s    *track.Service
	db   *store.DB
	ws   track.Workspace
	who  track.Caller
	stop func()

	blobs *blob.Store
}

func start(t testing.TB, dir string) *server {
	t.Helper()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "berth.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, db: db, blobs: blobs, ws: track.Workspace{Of: ofTests, Key: ofTests.Key(), Storage: locate.Storage{ID: "id", Blobs: "blobs", Artifacts: "artifacts"}}, who: track.Caller{User: "u", Write: true}}
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get("", "workspaces", s.ws.Key, "")
		if err != nil {
			own, err2 := json.Marshal(s.ws.Storage)
			if err2 != nil {
				return err2
			}
			d = &store.Doc{Kind: "workspaces", Name: s.ws.Key, Parent: ofTests.ID(), Own: own}
			err = tx.Insert(d)
		}
		s.ws.Doc, s.ws.Created = d.ID, d.Created
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	sign := func(a track.Address) string { return "https://h/" + a.Container + "/" + a.Name + "?perm=" + a.Perm }
	s.s = track.New(track.Options{DB: db, Blobs: blobs, Dir: filepath.Join(dir, "tracking"), Log: log, NoSync: true, Sign: sign, Locator: locate.Locator{BaseURL: "https://h", Zone: "zone.test:8443"}})
	s.stop = func() {
		s.stop = func() {}
		if err := s.s.Close(); err != nil {
			t.Error(err)
		}
		blobs.Close()
		db.Close()
	}
	t.Cleanup(func() { s.stop() })
	return s
}

// raw sends any body with any content type.
func (s *server) raw(method, path, kind, body string) (int, http.Header, string) {
	s.t.Helper()
	r := httptest.NewRequest(method, "http://h/"+strings.TrimPrefix(path, "/"), strings.NewReader(body))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	w := httptest.NewRecorder()
	s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath())
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return w.Code, w.Header(), string(b)
}

// do calls the API; path is below /api/2.0/mlflow/ unless it begins with a slash.
func (s *server) do(method, path string, body any) (int, obj) {
	s.t.Helper()
	text := ""
	switch b := body.(type) {
	case nil:
	case string:
		text = b
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		text = string(raw)
	}
	if !strings.HasPrefix(path, "/") {
		path = "/api/2.0/mlflow/" + path
	}
	code, _, out := s.raw(method, path, "application/json", text)
	m := obj{}
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		s.t.Fatalf("%s %s: %d %q", method, path, code, out)
	}
	return code, m
}

// must calls the API and wants it to succeed.
func (s *server) must(method, path string, body any) obj {
	s.t.Helper()
	code, m := s.do(method, path, body)
	if code != http.StatusOK {
		s.t.Fatalf("%s %s: %d %v", method, path, code, m)
	}
	return m
}

// at walks down an answer.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(obj)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func (s *server) newRun(experiment string, more obj) string {
	s.t.Helper()
	body := obj{"experiment_id": experiment, "start_time": 1}
	for k, v := range more {
		body[k] = v
	}
	return at(s.must("POST", "runs/create", body), "run", "info", "run_id").(string)
}

// TestKept: everything that was answered with 200 is there after the server was opened again.
func TestKept(t *testing.T) {
	s := start(t, t.TempDir())
	exp := s.must("POST", "experiments/create", obj{"name": "Ünïcode", "tags": []obj{{"key": "a", "value": "b"}}})["experiment_id"].(string)
	run := s.newRun(exp, obj{"run_name": "first"})
	s.must("POST", "runs/log-batch", obj{
		"run_id": run, "params": []obj{{"key": "p", "value": "1"}}, "tags": []obj{{"key": "t", "value": "x"}},
		"metrics": []obj{{"key": "m", "value": 1.5, "timestamp": 10, "step": 1}, {"key": "m", "value": "NaN", "timestamp": 11, "step": 2}, {"key": "n", "value": "-Infinity", "timestamp": 1}},
	})
	s.must("POST", "registered-models/create", obj{"name": "M"})
	s.must("POST", "model-versions/create", obj{"name": "M", "source": "mlflow-artifacts:/1/x", "run_id": run})
	s.must("POST", "registered-models/alias", obj{"name": "M", "alias": "best", "version": "1"})
	model := at(s.must("POST", "logged-models", obj{"experiment_id": exp, "name": "lm", "source_run_id": run}), "model", "info", "model_id").(string)
	s.must("POST", "runs/log-metric", obj{"run_id": run, "key": "acc", "value": 1, "timestamp": 1, "model_id": model, "dataset_name": "d", "dataset_digest": "1"})
	if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/"+exp+"/"+run+"/artifacts/a%20b/c+d.txt", "text/plain", "bytes"); code != http.StatusOK {
		t.Fatalf("%d %s", code, out)
	}

	for range 2 {
		got := s.must("GET", "runs/get?run_id="+run, nil)
		if at(got, "run", "data", "params", 0, "value") != "1" || at(got, "run", "info", "run_name") != "first" || at(got, "run", "data", "metrics", 1, "value") != "NaN" {
			t.Fatalf("the run is %v", got)
		}
		h := s.must("GET", "metrics/get-history?metric_key=m&run_id="+run, nil)
		if at(h, "metrics", 0, "value") != 1.5 || at(h, "metrics", 1, "value") != "NaN" {
			t.Fatalf("the history is %v", h)
		}
		if v := s.must("GET", "registered-models/alias?name=M&alias=best", nil); at(v, "model_version", "version") != "1" {
			t.Fatalf("the alias is %v", v)
		}
		if m := s.must("GET", "logged-models/"+model, nil); at(m, "model", "data", "metrics", 0, "dataset_name") != "d" {
			t.Fatalf("the model is %v", m)
		}
		if l := s.must("GET", "artifacts/list?path=a%20b&run_id="+run, nil); at(l, "files", 0, "path") != "a b/c+d.txt" {
			t.Fatalf("the files are %v", l)
		}
		if code, h, out := s.raw("GET", "/get-artifact?path=a%20b/c%2Bd.txt&run_id="+run, "", ""); code != http.StatusOK || out != "bytes" || h.Get("Content-Type") != "text/plain" {
			t.Fatalf("%d %v %q", code, h, out)
		}
		if e := s.must("GET", "experiments/get-by-name?experiment_name=%C3%9Cn%C3%AFcode", nil); at(e, "experiment", "tags", 0, "key") != "a" {
			t.Fatalf("the experiment is %v", e)
		}
		s.stop()
		s = start(t, s.dir)
	}
}

// TestRepeatedBatch: a batch that comes again is not doubled, and one that is refused leaves
// nothing.
func TestRepeatedBatch(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	batch := obj{"run_id": run, "metrics": []obj{{"key": "m", "value": 1, "timestamp": 1}, {"key": "m", "value": 2, "timestamp": 2}}, "params": []obj{{"key": "p", "value": "v"}}}
	for range 3 {
		s.must("POST", "runs/log-batch", batch)
	}
	if h := s.must("GET", "metrics/get-history?metric_key=m&run_id="+run, nil)["metrics"].([]any); len(h) != 2 {
		t.Errorf("the history is %v", h)
	}
	code, _ := s.do("POST", "runs/log-batch", obj{
		"run_id": run, "metrics": []obj{{"key": "other", "value": 1, "timestamp": 1}}, "tags": []obj{{"key": "t", "value": "v"}},
		"params": []obj{{"key": "q", "value": "v"}, {"key": "p", "value": "another"}},
	})
	if code != http.StatusBadRequest {
		t.Errorf("a parameter was changed: %d", code)
	}
	got := s.must("GET", "runs/get?run_id="+run, nil)
	if n := len(at(got, "run", "data", "params").([]any)); n != 1 || len(at(got, "run", "data", "metrics").([]any)) != 1 {
		t.Errorf("a refused batch left something: %v", got)
	}
}

// TestPages: pages meet without gaps, the last has no token, and tokens are good for their own
// query only.
func TestPages(t *testing.T) {
	s := start(t, t.TempDir())
	for i := range 7 {
		s.newRun("0", obj{"start_time": i, "run_name": fmt.Sprint("r", i)})
	}
	var names []string
	token, query := "", obj{"experiment_ids": []string{"0"}, "max_results": 3, "order_by": []string{"attributes.run_name desc"}}
	for {
		query["page_token"] = token
		got := s.must("POST", "runs/search", query)
		for _, r := range got["runs"].([]any) {
			names = append(names, at(r, "info", "run_name").(string))
		}
		next, _ := got["next_page_token"].(string)
		if next == "" {
			break
		}
		token = next
	}
	if strings.Join(names, " ") != "r6 r5 r4 r3 r2 r1 r0" {
		t.Errorf("the pages have %v", names)
	}
	query["page_token"], query["filter"] = token, "attributes.run_name != 'x'"
	if code, m := s.do("POST", "runs/search", query); code != http.StatusBadRequest || m["error_code"] != "INVALID_PARAMETER_VALUE" {
		t.Errorf("a token of another query: %d %v", code, m)
	}
}

// TestReader: who may only read cannot write.
func TestReader(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	s.who.Write = false
	s.must("GET", "runs/get?run_id="+run, nil)
	s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}})
	for _, path := range []string{"runs/create", "runs/log-metric", "runs/log-batch", "experiments/create", "registered-models/create", "logged-models"} {
		if code, m := s.do("POST", path, obj{}); code != http.StatusForbidden || m["error_code"] != "PERMISSION_DENIED" {
			t.Errorf("%s: %d %v", path, code, m)
		}
	}
	if code, _, out := s.raw("PUT", "/api/2.0/mlflow-artifacts/artifacts/0/x", "", "x"); code != http.StatusForbidden {
		t.Errorf("upload: %d %s", code, out)
	}
}

// TestLeaderInDoubtDoesNotAnswer: a server that may have been replaced answers nothing from what it
// has in memory, also when that came into doubt while the answer was made, and acknowledges no
// points.
func TestLeaderInDoubtDoesNotAnswer(t *testing.T) {
	s := start(t, t.TempDir())
	id := at(s.must("POST", "runs/create", obj{"experiment_id": "0"}), "run", "info", "run_id")
	metric := obj{"run_id": id, "key": "m", "value": 1, "timestamp": 1, "step": 1}
	s.must("POST", "runs/log-metric", metric)
	certain := 0 // how often it leads for certain
	s.s.Leads = func() bool { certain--; return certain >= 0 }
	for certainly := range 2 {
		for _, path := range []string{
			"runs/get?run_id=" + id.(string), "metrics/get-history?metric_key=m&run_id=" + id.(string), "experiments/get?experiment_id=0",
			"metrics/get-history-bulk?metric_key=m&run_id=" + id.(string), "metrics/get-history-bulk?metric_key=none&run_id=" + id.(string),
			"metrics/get-history-bulk-interval?metric_key=none&run_ids=" + id.(string), "experiments/search?max_results=1", "registered-models/search",
		} {
			certain = certainly
			if code, m := s.do("GET", path, nil); code != http.StatusServiceUnavailable {
				t.Errorf("GET %s of one that leads %d times: %d %v", path, certainly, code, m)
			}
		}
		certain = certainly
		if code, m := s.do("POST", "runs/log-metric", metric); code != http.StatusServiceUnavailable {
			t.Errorf("a point of one that leads %d times: %d %v", certainly, code, m)
		}
	}
	certain = 2
	s.must("GET", "runs/get?run_id="+id.(string), nil)
}
