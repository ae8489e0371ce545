package migrate_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestInputsAndOutputs: the datasets and models that a run read, and the models that it made, are
// as they were in the source, however many there are and however long, and do not come twice.
func TestInputsAndOutputs(t *testing.T) {
	there, here := newSpace(t), newSpace(t)
	experiment := there.must("POST", "experiments/create", obj{"name": "e"})["experiment_id"].(string)
	run := at(there.must("POST", "runs/create", obj{"experiment_id": experiment, "run_name": "r", "start_time": 1}), "run", "info", "run_id").(string)
	var models []string
	for i := range 3 {
		m := there.must("POST", "logged-models", obj{"experiment_id": experiment, "name": fmt.Sprint("m", i), "source_run_id": run})
		models = append(models, at(m, "model", "info", "model_id").(string))
	}
	var many []obj
	for i := range 600 {
		many = append(many, obj{
			"tags":    []obj{{"key": "mlflow.data.context", "value": "train"}},
			"dataset": obj{"name": fmt.Sprint("d", i), "digest": "1", "source_type": "local", "source": fmt.Sprintf(`{"path": "/%d"}`, i), "schema": `{"a": 1}`, "profile": `{"rows": 3}`},
		})
	}
	log := func(datasets []obj) {
		there.must("POST", "runs/log-inputs", obj{"run_id": run, "datasets": datasets, "models": []obj{{"model_id": models[0]}}})
	}
	log(many)
	for i := range many {
		many[i]["dataset"].(obj)["digest"] = "2"
	}
	log(many)
	log([]obj{{"dataset": obj{"name": "long", "digest": "1", "source_type": "http", "source": "https://h/x", "profile": strings.Repeat("<é", 1<<20)}}})
	there.must("POST", "runs/outputs", obj{"run_id": run, "models": []obj{{"model_id": models[1], "step": 3}, {"model_id": models[2], "step": 0}, {"model_id": models[1], "step": 7}}})

	want := there.must("GET", "runs/get?run_id="+run, nil)
	if n := len(at(want, "run", "inputs", "dataset_inputs").([]any)); n != 1201 {
		t.Fatalf("the source has %d datasets", n)
	}
	here.mustBring(there.source())
	log([]obj{{"dataset": obj{"name": "later", "digest": "1", "source_type": "local", "source": "x"}}})
	for range 2 {
		want := there.must("GET", "runs/get?run_id="+run, nil)
		here.mustBring(there.source())
		got := here.must("GET", "runs/get?run_id="+run, nil)
		for _, what := range []string{"inputs", "outputs"} {
			if g, w := text(at(got, "run", what)), text(at(want, "run", what)); g != w {
				t.Errorf("the %s are %d bytes, want %d: %.300s, want %.300s", what, len(g), len(w), g, w)
			}
		}
	}
}
