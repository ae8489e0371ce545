package api_test

import (
	"testing"

	"github.com/berthml/berth/internal/store"
)

// TestTrackingTokenIsOfOneJob: the token of a task opens the runs that its job made, and none of
// an earlier job of the same name.
func TestTrackingTokenIsOfOneJob(t *testing.T) {
	x := openPulling(t)
	url := "/mlflow/v1.0" + workspace.ID() + "/api/2.0/mlflow/"
	experiment := x.as(x.token, "GET", url+"experiments/get-by-name?experiment_name=Default", nil, "Content-Type", "application/json").want(200).at("experiment.experiment_id")
	run := x.as(x.token, "POST", url+"runs/create", map[string]any{"experiment_id": experiment}, "Content-Type", "application/json").want(200).at("run.info.run_id").(string)
	get := func(want int) {
		t.Helper()
		x.as(x.token, "GET", url+"runs/get?run_id="+run, nil).want(want)
	}
	get(200)
	again := func(insert bool) {
		t.Helper()
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(workspace.Key(), "jobs", "p", "")
			if err == nil {
				err = tx.Delete(workspace.Key(), "jobs", "p", "")
			}
			if err == nil && insert {
				err = tx.Insert(d)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	again(true)
	get(403)
	again(false)
	get(401)
}

// TestMLflowWithoutWorkspace: the server's own address is not that of an MLflow server, and says
// which is, as MLflow's clients show it.
func TestMLflowWithoutWorkspace(t *testing.T) {
	x := open(t)
	for _, path := range []string{"/api/2.0/mlflow/experiments/search", "/ajax-api/3.0/mlflow/traces", "/api/2.0/mlflow-artifacts/artifacts"} {
		x.as("", "POST", path, map[string]any{}).want(404).is("error_code", "RESOURCE_DOES_NOT_EXIST").
			is("message", "each workspace is an MLflow server of its own: use the address that `berth tracking-uri` prints")
	}
	x.do("GET", "/mlflow/v1.0"+workspace.ID(), nil).want(404).is("message", "There is no web page here: use `berth runs` and `berth metrics RUN`. The API is under /api/2.0/mlflow")
	x.do("GET", "/api/2.0/other", nil).want(404).is("error.code", "ResourceNotFound")
}
