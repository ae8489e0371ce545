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
