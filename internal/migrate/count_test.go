package migrate_test

import (
	"net/http"
	"testing"

	"github.com/berthml/berth/internal/migrate"
)

// TestCountsWhatArrived: what this server refuses is named and not counted as imported, and a
// registered model without versions is one.
func TestCountsWhatArrived(t *testing.T) {
	const other, model = "1" + aRun, "m-0123456789abcdef0123456789abcdef"
	run := func(id, status string) obj { return obj{"info": obj{"run_id": id, "run_name": "r", "status": status}} }
	n, err := hostile(t, migrate.Patience, map[string]http.HandlerFunc{
		"runs/search":           says(obj{"runs": []obj{run(aRun, "FINISHED"), run(other[:32], "BOGUS")}}),
		"logged-models/search":  says(obj{"models": []obj{{"info": obj{"model_id": model, "name": "m", "status": "BOGUS"}}}}),
		"model-versions/search": says(obj{}),
	})
	if err != nil || n.Runs != 1 || n.Logged != 0 || n.Models != 1 || n.Versions != 0 || n.LeftBehind != 2 || len(n.NotImported) != 2 {
		t.Errorf("%v, %+v", err, n)
	}
}
