package migrate_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/migrate"
)

// TestRunsOfJobs: runs with the names of jobs as ids get others, by which their children, models
// and versions name them, also where a run comes before what it names, or from another address of
// the same source.
func TestRunsOfJobs(t *testing.T) {
	const sweep, trial, model = "sweep", "Sweep_0", "m-0123456789abcdef0123456789abcdef"
	run := func(experiment, id string, tags ...obj) obj {
		return obj{"info": obj{"run_id": id, "run_name": id, "status": "FINISHED", "start_time": 1, "experiment_id": experiment}, "data": obj{"tags": tags, "metrics": []obj{{"key": "m", "value": 1}}}}
	}
	parent := func(id string) obj { return obj{"key": "mlflow.parentRunId", "value": id} }
	runs := map[string][]obj{
		"1": {run("1", aRun, parent(trial)), run("1", trial, parent(sweep), obj{"key": "mlflow.rootRunId", "value": sweep})},
		"2": {run("2", sweep), run("2", "")},
	}
	answers := map[string]http.HandlerFunc{
		"experiments/search": says(obj{"experiments": []obj{{"experiment_id": "1", "name": "e", "creation_time": 7}, {"experiment_id": "2", "name": "f", "creation_time": 8}}}),
		"runs/search": func(w http.ResponseWriter, r *http.Request) {
			var in struct{ Experiment_ids []string }
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Error(err)
			}
			says(obj{"runs": runs[in.Experiment_ids[0]]})(w, r)
		},
		"runs/get": func(w http.ResponseWriter, r *http.Request) {
			for _, list := range runs {
				for _, one := range list {
					if at(one, "info", "run_id") == r.FormValue("run_id") {
						says(obj{"run": one})(w, r)
						return
					}
				}
			}
			http.NotFound(w, r)
		},
		"artifacts/list":        says(obj{"files": []obj{{"path": "f", "file_size": 3}}}),
		"get-artifact":          func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("abc")) },
		"logged-models/search":  says(obj{"models": []obj{{"info": obj{"model_id": model, "name": "m", "source_run_id": trial}, "data": obj{"metrics": []obj{{"key": "m", "value": 1, "run_id": trial}}}}}}),
		"model-versions/search": says(obj{"model_versions": []obj{{"version": "1", "source": "runs:/" + trial + "/f", "run_id": trial}}}),
		"logged-models/" + model + "/artifacts/directories": says(obj{}),
	}
	here := newSpace(t)
	for i := range 2 {
		from, err := migrate.Server(fake(t, answers), "", nil, migrate.Patience) // at another port
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := here.bring(from)
		if err != nil || n.Runs != 3 || n.Unchanged != 3*i || n.Points > 5 {
			t.Errorf("%v, %+v", err, n)
		}
	}
	found := map[string]obj{}
	for _, r := range here.must("POST", "runs/search", obj{"experiment_ids": []string{"1", "2"}})["runs"].([]any) {
		found[at(r, "info", "run_name").(string)] = r.(obj)
	}
	if len(found) != 3 {
		t.Fatalf("there are the runs %v", found)
	}
	id := func(name string) string { return at(found[name], "info", "run_id").(string) }
	tags := func(name string) map[string]string {
		out := map[string]string{}
		list, _ := at(found[name], "data", "tags").([]any)
		for _, p := range list {
			out[at(p, "key").(string)] = at(p, "value").(string)
		}
		return out
	}
	if id(aRun) != aRun || len(id(sweep)) != 32 || len(id(trial)) != 32 || id(sweep) == id(trial) {
		t.Errorf("the ids are %s, %s, %s", id(aRun), id(sweep), id(trial))
	}
	if a, b := tags(aRun), tags(trial); a["mlflow.parentRunId"] != id(trial) || b["mlflow.parentRunId"] != id(sweep) || b["mlflow.rootRunId"] != id(sweep) {
		t.Errorf("the parents are %v, %v", a, b)
	}
	if tags(trial)["berth.imported_id"] != trial || tags(sweep)["berth.imported_id"] != sweep || tags(aRun)["berth.imported_id"] != "" {
		t.Errorf("the tags are %v", tags(trial))
	}
	if files, _ := here.must("GET", "artifacts/list?run_id="+id(trial), nil)["files"].([]any); len(files) != 1 {
		t.Errorf("its files are %v", files)
	}
	if points, _ := here.must("GET", "metrics/get-history?metric_key=m&run_id="+id(trial), nil)["metrics"].([]any); len(points) != 1 {
		t.Errorf("its points are %v", points)
	}
	m := here.must("GET", "logged-models/"+model, nil)
	if at(m, "model", "info", "source_run_id") != id(trial) || at(m, "model", "data", "metrics", 0, "run_id") != id(trial) {
		t.Errorf("the logged model is %v", m)
	}
	v := here.must("GET", "model-versions/get?name=M&version=1", nil)
	if at(v, "model_version", "run_id") != id(trial) || !strings.HasSuffix(at(v, "model_version", "source").(string), "/"+id(trial)+"/artifacts/f") {
		t.Errorf("the version is %v", v)
	}
}
