package track_test

import (
	"fmt"
	"testing"
)

// TestSizesCountPointsOnce: a point that a run measured on a logged model is kept with both and
// counts once. What only the model has counts too.
func TestSizesCountPointsOnce(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	model := at(s.must("POST", "logged-models", obj{"experiment_id": "0", "name": "m"}), "model", "info", "model_id")
	for step := range 10 {
		s.must("POST", "runs/log-metric", obj{"run_id": run, "key": "acc", "value": step, "timestamp": 1, "step": step, "model_id": model, "dataset_name": "d", "dataset_digest": "1"})
		s.must("POST", "runs/log-metric", obj{"run_id": run, "key": "loss", "value": step, "timestamp": 1, "step": step})
	}
	points := func() any {
		return at(s.must("GET", "/api/2.0/berth/experiments/sizes", nil), "experiments", 0, "points")
	}
	if n := points(); fmt.Sprint(n) != "20" {
		t.Errorf("20 points count as %v", n)
	}
	const id = "m-0123456789abcdef0123456789abcdef"
	s.must("POST", "/api/2.0/berth/import/logged-model", obj{"model_id": id, "experiment_id": "0", "name": "m", "from": "http://old"})
	s.must("POST", "/api/2.0/berth/import/logged-model-metrics", obj{"model_id": id, "metrics": []obj{
		{"key": "acc", "value": 1, "timestamp": 1, "run_id": "left behind"}, {"key": "acc", "value": 2, "timestamp": 2},
	}})
	if n := points(); fmt.Sprint(n) != "22" {
		t.Errorf("22 points count as %v", n)
	}
}
