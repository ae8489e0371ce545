package track_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestSearchIsBounded: what one search may ask for is limited.
func TestSearchIsBounded(t *testing.T) {
	s := start(t, t.TempDir())
	var orders []string
	for i := range 1000 {
		orders = append(orders, fmt.Sprint("tags.t", i))
	}
	s.want(400, "POST", "runs/search", obj{"experiment_ids": []string{"0"}, "order_by": orders})
	s.want(200, "POST", "runs/search", obj{"experiment_ids": []string{"0"}, "order_by": orders[:20]})
	s.want(400, "POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": "tags.t LIKE '%" + strings.Repeat("a_", 2500) + "b'"})
	for range 5 {
		s.newRun("0", obj{"tags": []obj{{"key": "t", "value": strings.Repeat("a", 5000)}}})
	}
	got := s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": "tags.t LIKE '%" + strings.Repeat("a", 2500) + "%'"})
	if n := len(got["runs"].([]any)); n != 5 {
		t.Errorf("%d runs", n)
	}
}

// TestSearchKeysAreBounded: a search names no key longer than those that can be logged.
func TestSearchKeysAreBounded(t *testing.T) {
	s := start(t, t.TempDir())
	search := func(status int, call string, body obj) {
		t.Helper()
		body["experiment_ids"] = []string{"0"}
		got := s.want(status, "POST", call, body)
		if n := len(text(t, got)); status == 400 && (got["error_code"] != "INVALID_PARAMETER_VALUE" || n > 8<<10) {
			t.Errorf("%d bytes: %.300v", n, got)
		}
	}
	for _, n := range []struct{ length, status int }{{250, 200}, {251, 400}, {1 << 18, 400}} {
		key := strings.Repeat("ü", n.length)
		for _, of := range []string{"metrics", "params", "tags"} {
			name := of + ".`" + key + "`"
			search(n.status, "runs/search", obj{"order_by": []string{name + "   DESC"}})
			search(n.status, "runs/search", obj{"filter": name + map[bool]string{true: " > 1", false: " != 'x'"}[of == "metrics"]})
		}
		search(n.status, "logged-models/search", obj{"order_by": []obj{{"field_name": "metrics." + key}}})
		search(n.status, "logged-models/search", obj{"filter": "params.`" + key + "` = 'x'"})
		search(400, "experiments/search", obj{"filter": key + " = 'x'", "max_results": 1})
		search(400, "runs/search", obj{"order_by": []string{key + ".x"}})
		search(400, "logged-models/search", obj{"order_by": []obj{{"field_name": key}}})
	}
	search(400, "runs/search", obj{"order_by": []string{"metrics.k" + strings.Repeat(" ", 1<<18) + "DESC"}})
}

// TestQueriesAreSmall: a request that changes nothing has room for the longest filter, and for
// little more.
func TestQueriesAreSmall(t *testing.T) {
	s := start(t, t.TempDir())
	quotes := "tags.t = '" + strings.Repeat(`"`, 1<<20-11) + "'" // each is two bytes of JSON
	s.want(200, "POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": quotes})
	for _, call := range []string{"runs/search", "logged-models/search", "experiments/search", "registered-models/search", "model-versions/search", "experiments/search-datasets"} {
		if got := s.want(400, "POST", call, obj{"more": strings.Repeat("x", 3<<20)}); !strings.Contains(fmt.Sprint(got["message"]), "larger than") {
			t.Errorf("%s: %.200v", call, got)
		}
	}
	run := s.newRun("0", nil)
	s.must("POST", "runs/set-tag", obj{"run_id": run, "key": "k", "value": strings.Repeat("x", 3<<20)})
}

// TestJobSearchesItsRuns: a job finds the runs that it may read, and no others of its experiment.
func TestJobSearchesItsRuns(t *testing.T) {
	s := start(t, t.TempDir())
	job := s.as(s.addJob("train", "ann", "mine"))
	exp := at(job.must("GET", "experiments/get-by-name?experiment_name=mine", nil), "experiment", "experiment_id").(string)
	nested := job.newRun(exp, nil)
	for range 3 {
		s.newRun(exp, obj{"tags": []obj{{"key": "secret", "value": "bob's"}}})
	}
	var found []string
	query := obj{"experiment_ids": []string{exp}, "max_results": 1}
	for {
		got := job.must("POST", "runs/search", query)
		runs, _ := got["runs"].([]any)
		for _, r := range runs {
			found = append(found, at(r, "info", "run_id").(string))
		}
		if query["page_token"] = got["next_page_token"]; query["page_token"] == nil {
			break
		}
	}
	if len(found) != 2 || !strings.Contains(strings.Join(found, " "), nested) || !strings.Contains(strings.Join(found, " "), "train") {
		t.Errorf("the job finds %v", found)
	}
}

// TestLoggedSearchIsBounded: a search of logged models has few orders and datasets.
func TestLoggedSearchIsBounded(t *testing.T) {
	s := start(t, t.TempDir())
	search := func(status, orders, datasets int) {
		t.Helper()
		body := obj{"experiment_ids": []string{"0"}}
		var by, on []obj
		for range orders {
			by = append(by, obj{"field_name": "metrics.m"})
		}
		for range datasets {
			on = append(on, obj{"dataset_name": "d"})
		}
		body["order_by"], body["datasets"] = by, on
		s.want(status, "POST", "logged-models/search", body)
	}
	search(200, 20, 100)
	search(400, 21, 0)
	search(400, 0, 101)
}

// TestLoggedSearchReadsMetricsOnce: a search of logged models looks at the metrics of each once,
// however many of them its filter and its order name.
func TestLoggedSearchReadsMetricsOnce(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	const models, series, most = 3, 400, 20
	for range models {
		id := at(s.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m"}), "model", "info", "model_id").(string)
		var metrics []obj
		for i := range series {
			metrics = append(metrics, obj{"key": fmt.Sprint("m", i), "value": i, "timestamp": 1, "model_id": id})
		}
		s.must("POST", "runs/log-batch", obj{"run_id": run, "metrics": metrics})
	}
	search := func(n int) float64 {
		var filter []string
		var by []obj
		for i := range n {
			filter = append(filter, fmt.Sprintf("metrics.m%d >= %d", i, i))
			by = append(by, obj{"field_name": fmt.Sprint("metrics.m", i)})
		}
		body := text(t, obj{"experiment_ids": []string{"0"}, "filter": strings.Join(filter, " AND "), "order_by": by, "page_token": "eyJvZmZzZXQiOiAxMH0="})
		return testing.AllocsPerRun(2, func() {
			if code, _, out := s.raw("POST", "/api/2.0/mlflow/logged-models/search", "application/json", body); code != 200 {
				t.Fatal(out)
			}
		})
	}
	if one, many := search(1), search(most); many > 3*one {
		t.Errorf("%v allocations with one metric, %v with %d", one, many, most)
	}
}

// TestSearchOfAllExperiments: a search may ask for the runs of all experiments without naming them,
// page by page, and finds what it would find if it named them.
func TestSearchOfAllExperiments(t *testing.T) {
	s := start(t, t.TempDir())
	job := s.as(s.addJob("train", "ann", "mine"))
	job.must("GET", "runs/get?run_id=train", nil)
	for i := range 3 {
		exp := s.must("POST", "experiments/create", obj{"name": fmt.Sprint("e", i)})["experiment_id"].(string)
		s.newRun(exp, obj{"run_name": fmt.Sprint("run", i)})
		if run := s.newRun(exp, obj{"run_name": fmt.Sprint("back", i)}); i == 2 {
			s.must("POST", "experiments/delete", obj{"experiment_id": exp})
			s.must("POST", "runs/restore", obj{"run_id": run})
		}
	}
	find := func(who *server, q obj) string {
		t.Helper()
		var found []string
		for q["max_results"] = 2; ; {
			got := who.must("POST", "runs/search", q)
			runs, _ := got["runs"].([]any)
			for _, r := range runs {
				found = append(found, at(r, "info", "run_name").(string))
			}
			if q["page_token"] = got["next_page_token"]; q["page_token"] == nil {
				return strings.Join(found, " ")
			}
		}
	}
	const all = "berth_experiment_view_type"
	name := at(job.must("GET", "runs/get?run_id=train", nil), "run", "info", "run_name").(string)
	for _, c := range []struct {
		who  *server
		q    obj
		want string
	}{
		{s, obj{all: "ACTIVE_ONLY"}, "back0 back1 run0 run1 " + name},
		{s, obj{all: "ALL"}, "back0 back1 back2 run0 run1 " + name},
		{s, obj{all: "ALL", "run_view_type": "DELETED_ONLY"}, "run2"},
		{s, obj{all: "ACTIVE_ONLY", "run_view_type": "DELETED_ONLY"}, ""},
		{s, obj{}, ""},
		{job, obj{all: "ALL"}, name},
	} {
		c.q["order_by"] = []string{"run_name"}
		if got := find(c.who, c.q); got != c.want {
			t.Errorf("%v: %q, want %q", c.q, got, c.want)
		}
	}
	s.want(400, "POST", "runs/search", obj{all: "ALL", "experiment_ids": []string{"0"}})
	s.want(400, "POST", "runs/search", obj{all: "NONE"})
	token := s.must("POST", "runs/search", obj{all: "ALL", "max_results": 1})["next_page_token"]
	s.want(400, "POST", "runs/search", obj{all: "ACTIVE_ONLY", "max_results": 1, "page_token": token})
}
