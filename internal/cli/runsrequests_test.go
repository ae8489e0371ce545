package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
)

// TestRunsOfManyExperiments: a list of runs names no experiments, however many there are, and asks
// for the names of those alone that its runs are in.
func TestRunsOfManyExperiments(t *testing.T) {
	var asked []string
	serve := func(w http.ResponseWriter, r *http.Request) {
		var q map[string]any
		if r.Method == http.MethodPost {
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				t.Error(err)
			}
		}
		switch call := path.Base(path.Dir(r.URL.Path)) + "/" + path.Base(r.URL.Path); call {
		case "runs/search":
			asked = append(asked, fmt.Sprint("runs of ", q["experiment_ids"], " or all ", q["berth_experiment_view_type"]))
			fmt.Fprint(w, `{"runs": [{"info": {"run_id": "a", "experiment_id": "99999"}}, {"info": {"run_id": "b", "experiment_id": "7"}},
				{"info": {"run_id": "c", "experiment_id": "7"}}]}`)
		case "experiments/search":
			asked = append(asked, fmt.Sprint("experiments ", q["filter"]))
			fmt.Fprint(w, `{"experiments": [{"experiment_id": "99999", "name": "big"}, {"experiment_id": "7", "name": "small"}]}`)
		case "experiments/get-by-name":
			asked = append(asked, "experiment "+r.URL.Query().Get("experiment_name"))
			fmt.Fprint(w, `{"experiment": {"experiment_id": "7", "name": "small", "lifecycle_stage": "active"}}`)
		default:
			t.Errorf("%s is asked for", r.URL)
			http.NotFound(w, r)
		}
	}
	const names = "; experiments experiment_id IN ('7','99999')"
	for _, c := range [][2]string{
		{"runs", "runs of <nil> or all ACTIVE_ONLY" + names},
		{"runs --deleted", "runs of <nil> or all ALL" + names},
		{"runs --experiment small", "experiment small; runs of [7] or all <nil>" + names},
		{"runs export --format jsonl", "runs of <nil> or all ACTIVE_ONLY"},
	} {
		asked = nil
		code, out := berthAt(t, serve, strings.Fields(c[0])...)
		if got := strings.Join(asked, "; "); code != 0 || got != c[1] {
			t.Errorf("berth %s: %d, asked for %s\nwant %s", c[0], code, got, c[1])
		}
		if !strings.Contains(c[0], "export") && (!strings.Contains(out, "big") || !strings.Contains(out, "small")) {
			t.Errorf("berth %s printed\n%s", c[0], out)
		}
	}
}

// TestRunsWithManyMetrics: a run with very many metrics and parameters makes no table much longer:
// it is asked for few of them, and says how many there are.
func TestRunsWithManyMetrics(t *testing.T) {
	const many = 20000
	var metrics, params []string
	for i := range many {
		metrics = append(metrics, fmt.Sprintf(`{"key": "m%05d", "value": %d}`, i, i))
		params = append(params, fmt.Sprintf(`{"key": "p%05d", "value": "x"}`, i))
	}
	info := func(id string) string {
		return fmt.Sprintf(`{"info": {"run_id": %q, "run_name": "n", "experiment_id": "0"}, "data": {"metrics": [%s], "params": [%s]`,
			id, strings.Join(metrics, ","), strings.Join(params, ","))
	}
	asked, charts := "", 0
	serve := func(w http.ResponseWriter, r *http.Request) {
		switch path.Base(path.Dir(r.URL.Path)) + "/" + path.Base(r.URL.Path) {
		case "runs/search":
			var q map[string]any
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				t.Error(err)
			}
			asked = fmt.Sprint(q["berth_max_metrics"], " ", q["berth_metric_keys"])
			fmt.Fprintf(w, `{"runs": [%s, "berth_metric_count": 400000}}]}`, info("a"))
		case "experiments/search":
			fmt.Fprint(w, `{}`)
		case "runs/get":
			fmt.Fprintf(w, `{"run": %s}}}`, info(r.URL.Query().Get("run_id")))
		case "metrics/get-history-bulk-interval":
			charts++
			fmt.Fprint(w, `{}`)
		default:
			t.Errorf("%s is asked for", r.URL)
			http.NotFound(w, r)
		}
	}
	for _, c := range []struct{ command, asked, has string }{
		{"runs", "20 <nil>", "m00019=19 … and 399980 more  p00000=x"},
		{"runs --columns run,metrics.m00007,metrics.no", "<nil> [m00007 no]", "a    7"},
		{"runs -o json", "<nil> <nil>", "m19999"},
		{"metrics a", "", "m00199"},
		{"runs compare a b --all", "", "metric m00199"},
	} {
		asked = ""
		code, out := berthAt(t, serve, strings.Fields(c.command)...)
		if code != 0 || asked != c.asked || !strings.Contains(out, c.has) {
			t.Errorf("berth %s: %d, asked for %q, printed\n%.2000s", c.command, code, asked, out)
		}
		if len(out) > 100_000 && !strings.Contains(c.command, "json") {
			t.Errorf("berth %s printed %d bytes", c.command, len(out))
		}
	}
	if charts != 200 {
		t.Errorf("%d charts were asked for", charts)
	}
}

// TestExportWritesPageByPage: JSON lines are written as their page comes, not when all are here.
func TestExportWritesPageByPage(t *testing.T) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		var q map[string]any
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		if q["page_token"] == "second" {
			http.Error(w, `{"error_code": "INTERNAL_ERROR", "message": "broken"}`, http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{"runs": [{"info": {"run_id": "a"}}, {"info": {"run_id": "b"}}], "next_page_token": "second"}`)
	}
	code, out := berthAt(t, serve, "runs", "export", "--format", "jsonl")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); code == 0 || len(lines) != 2 || !strings.Contains(lines[1], `"run_id":"b"`) {
		t.Errorf("%d, printed\n%s", code, out)
	}
}
