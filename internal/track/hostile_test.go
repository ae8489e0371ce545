package track_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/track"
)

// text is a value as JSON.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// ones is a list of many numbers.
func ones(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

// TestErrorsAreShort: a request with many bad elements is refused at the first, and the error has
// the beginning of what was sent.
func TestErrorsAreShort(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	bad := func(key string) []obj {
		var out []obj
		for range 900 {
			out = append(out, obj{"key": key, "value": 1, "timestamp": []int{}})
		}
		return out
	}
	const count = 2000
	for path, body := range map[string]obj{
		"runs/create":              {"experiment_id": "0", "tags": ones(count)},
		"runs/search":              {"experiment_ids": ones(count)},
		"experiments/create":       {"name": "e", "tags": bad("k")},
		"registered-models/create": {"name": "M", "tags": bad("")},
		"runs/log-batch":           {"run_id": run, "metrics": bad("k")},
		"runs/log-inputs":          {"run_id": run, "datasets": ones(count)},
		"runs/log-parameter":       {"run_id": run, "key": obj{"long": strings.Repeat("ä", count)}},
	} {
		sent := text(t, body)
		var m obj
		allocs := testing.AllocsPerRun(1, func() {
			code, _, out := s.raw("POST", "/api/2.0/mlflow/"+path, "application/json", sent)
			if err := json.Unmarshal([]byte(out), &m); err != nil || code != 400 {
				t.Fatalf("%s: %d %s", path, code, out)
			}
		})
		if words, _ := m["message"].(string); m["error_code"] != "INVALID_PARAMETER_VALUE" || len(words) > 1300 {
			t.Errorf("%s: %v", path, m)
		}
		if allocs > 50*count {
			t.Errorf("%s: %v allocations", path, allocs)
		}
	}
	m := s.want(400, "POST", "runs/log-batch", obj{"run_id": run, "tags": ones(count)})
	if words := fmt.Sprint(m["message"]); !strings.HasPrefix(words, "A batch logging request can contain at most 100 tags. Got 2000 tags.") {
		t.Errorf("elements are read before they are counted: %s", words)
	}
}

// TestBodiesAreBounded: a body has so many values and so many levels, however short it is.
func TestBodiesAreBounded(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	refused := func(path, body, words string) {
		t.Helper()
		var m obj
		code, _, out := s.raw("POST", "/api/2.0/mlflow/"+path, "application/json", body)
		if err := json.Unmarshal([]byte(out), &m); err != nil || code != 400 {
			t.Fatalf("%s: %d %.200s", path, code, out)
		}
		if got := fmt.Sprint(m["message"]); m["error_code"] != "INVALID_PARAMETER_VALUE" || !strings.Contains(got, words) {
			t.Errorf("%s: %v", path, m)
		}
	}
	many := "[" + strings.Repeat("{},", 200_000) + "{}]"
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for _, path := range []string{"runs/search", "runs/log-batch", "runs/log-inputs", "experiments/create"} {
		refused(path, `{"name": "e", "run_id": "`+run+`", "x": `+many+`}`, "more than 100000 values")
		refused(path, `{"name": "e", "run_id": "`+run+`", "x": `+deep+`}`, "more than 64 levels")
	}
	refused("runs/search", text(t, `{"x": `+many+`}`), "more than 100000 values")
	pairs := strings.Repeat(`{"key":"k"},`, 200_000) + `{"key":"k"}`
	for _, field := range []string{"params", "tags"} {
		refused("runs/log-batch", `{"run_id": "`+run+`", "`+field+`": [`+pairs+`]}`, "more than 100000 values")
	}
	metrics := strings.Repeat(`{"key":"k","value":1,"timestamp":1},`, 5000) + `{"key":"k","value":1,"timestamp":1}`
	refused("runs/log-batch", `{"run_id": "`+run+`", "metrics": [`+metrics+`]}`, "at most 1000 metrics. Got 5001 metrics.")
	refused("runs/log-model", text(t, obj{"run_id": run, "model_json": many}), "Malformed model info")
	ids := make([]string, 90_000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	s.must("POST", "runs/search", obj{"experiment_ids": ids})
}

// TestListsAreBounded: lists of a filter, and of files to upload.
func TestListsAreBounded(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	d := obj{"name": "d7", "digest": "1", "source_type": "local", "source": "x"}
	s.must("POST", "runs/log-inputs", obj{"run_id": run, "datasets": []obj{{"dataset": d}}})
	search := func(op string, n int) obj {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "'d%d', 'd%d', ", i, i)
		}
		return obj{"experiment_ids": []string{"0"}, "filter": "datasets.name " + op + " (" + strings.TrimSuffix(b.String(), ", ") + ")"}
	}
	for _, c := range []struct {
		op       string
		n, found int
	}{{"IN", 7, 0}, {"IN", 10_000, 1}, {"NOT IN", 10_000, 0}, {"NOT IN", 7, 1}} {
		runs, _ := s.must("POST", "runs/search", search(c.op, c.n))["runs"].([]any)
		if len(runs) != c.found {
			t.Errorf("%s of %d: %d runs", c.op, c.n, len(runs))
		}
	}
	m := s.want(400, "POST", "runs/search", search("IN", 10_001))
	if m["error_code"] != "INVALID_PARAMETER_VALUE" || len(fmt.Sprint(m["message"])) > 500 {
		t.Errorf("%v", m)
	}

	paths := func(n int) obj {
		var out []obj
		for i := range n {
			out = append(out, obj{"path": fmt.Sprint("f", i)})
		}
		return obj{"paths": out}
	}
	upload := "/" + track.HistoryPath + run + "/artifacts/batch/metadata"
	s.must("POST", upload, paths(1000))
	if m := s.want(400, "POST", upload, paths(1001)); m["error_code"] != "INVALID_PARAMETER_VALUE" {
		t.Errorf("%v", m)
	}
}

// TestEntitiesAreBounded: a run, model or version has so much of tags, parameters and datasets, and
// one that is full can still be ended and deleted.
func TestEntitiesAreBounded(t *testing.T) {
	s := start(t, t.TempDir())
	tags := func(n int, value string) []obj {
		var out []obj
		for i := range n {
			out = append(out, obj{"key": fmt.Sprintf("k%04d", i), "value": value})
		}
		return out
	}
	long := strings.Repeat("<", 8000)
	run := s.newRun("0", obj{"tags": tags(250, long)}) // written as it is, and not as \u003c
	if _, _, out := s.raw("GET", "/api/2.0/mlflow/runs/get?run_id="+run, "", ""); len(out) > 2_100_000 {
		t.Errorf("the answer has %d bytes", len(out))
	}
	full := func(m obj) {
		t.Helper()
		if words := fmt.Sprint(m["message"]); m["error_code"] != "INVALID_PARAMETER_VALUE" || !strings.Contains(words, "more than 2 MiB") {
			t.Errorf("%v", m)
		}
	}
	full(s.want(400, "POST", "runs/create", obj{"experiment_id": "0", "tags": tags(300, long)}))
	full(s.want(400, "POST", "experiments/create", obj{"name": "e", "tags": tags(500, long[:5000])}))
	full(s.want(400, "POST", "registered-models/create", obj{"name": "M", "tags": tags(25, strings.Repeat("x", 100_000))}))
	full(s.want(400, "POST", "logged-models", obj{"experiment_id": "0", "name": "m", "tags": tags(300, long)}))
	var data []obj
	for i := range 60 {
		data = append(data, obj{"dataset": obj{"name": fmt.Sprint("d", i), "digest": "1", "source_type": "local", "source": "x", "profile": long}})
	}
	full(s.want(400, "POST", "runs/log-inputs", obj{"run_id": run, "datasets": data}))
	for i := range 100 {
		if code, _ := s.do("POST", "runs/set-tag", obj{"run_id": run, "key": fmt.Sprint("more", i), "value": long}); code != 200 {
			break
		}
	}
	full(s.want(400, "POST", "runs/set-tag", obj{"run_id": run, "key": "last", "value": long}))
	s.must("POST", "runs/set-tag", obj{"run_id": run, "key": "k0001", "value": "short"})
	s.must("POST", "runs/update", obj{"run_id": run, "status": "FINISHED", "end_time": 1})
	s.must("POST", "runs/delete", obj{"run_id": run})
}
