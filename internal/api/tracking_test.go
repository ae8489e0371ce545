package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
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

// TestRegisteredFilesOfDeletedJob: a deleted job leaves the files of registered versions, also
// where nothing was logged to its run. They stay its user's: the run is kept, and others get no job
// of its name.
func TestRegisteredFilesOfDeletedJob(t *testing.T) {
	x := open(t)
	ann, bob := x.token("ann", auth.User), x.token("bob", auth.User)
	mlflow := "/mlflow/v1.0" + workspace.ID() + "/api/2.0/mlflow/"
	call := func(token, method, path string, body any) answer {
		t.Helper()
		return x.as(token, method, mlflow+path, body, "Content-Type", "application/json")
	}
	call(ann, "POST", "registered-models/create", map[string]any{"name": "annmodel"}).want(200)
	job := props("jobType", "Command", "command", "true", "experimentName", "anns")
	for store, at := range map[string]string{"workspaceartifactstore": "ExperimentRun/dcid.", "workspaceblobstore": "azureml/"} {
		for _, by := range []string{"mlflow", "api"} {
			name := "regjob" + by + store
			x.as(ann, "PUT", x.ws+"/jobs/"+name, job).want(201)
			x.ended(name)
			box := x.do("GET", x.ws+"/datastores/"+store, nil).want(200).at("properties.containerName").(string)
			for _, file := range []string{"outputs/model/MLmodel", "other"} {
				if _, err := x.blobs.Put(blob.WithUser(t.Context(), "ann"), box, at+name+"/"+file, strings.NewReader("bytes"), blob.PutOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			uri := "azureml://datastores/" + store + "/paths/" + at + name + "/outputs/model"
			if by == "api" {
				x.as(ann, "PUT", x.ws+"/models/"+name+"/versions/1", props("modelUri", uri)).want(201)
			} else {
				call(ann, "POST", "model-versions/create", map[string]any{"name": "annmodel", "source": uri}).want(200)
			}
			x.as(ann, "DELETE", x.ws+"/jobs/"+name, nil).want(202)
			for _, again := range []string{name, strings.ToUpper(name)} {
				x.as(bob, "PUT", x.ws+"/jobs/"+again, job).want(409).says("of ann, of a job that was deleted")
			}
			call(bob, "GET", "runs/get?run_id="+name, nil).want(200).is("run.info.status", "FINISHED")
			x.as(ann, "PUT", x.ws+"/jobs/"+name, job).want(201)
		}
	}
	// Of what nothing is left, the name is anybody's.
	x.as(ann, "PUT", x.ws+"/jobs/plain", job).want(201)
	x.ended("plain")
	x.as(ann, "DELETE", x.ws+"/jobs/plain", nil).want(202)
	x.as(bob, "PUT", x.ws+"/jobs/plain", job).want(201)
	// A version names the run of its job from the time when it is made.
	x.as(ann, "PUT", x.ws+"/jobs/empty", job).want(201)
	x.ended("empty")
	call(ann, "POST", "model-versions/create", map[string]any{"name": "annmodel", "source": "runs:/empty/outputs/model"}).want(200)
	x.as(ann, "DELETE", x.ws+"/jobs/empty", nil).want(202)
	x.as(bob, "PUT", x.ws+"/jobs/empty", job).want(409)
}

// ended makes a job one that has completed.
func (x *house) ended(name string) {
	x.t.Helper()
	err := x.db.Update(x.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(workspace.Key(), "jobs", name, "")
		if err != nil {
			return err
		}
		d.Status = string(berth.Completed)
		return tx.Save(d)
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// TestLongModelHoldsUpNoSearch: a version of a model whose address is as long as a request may be
// is shown in the registry, and runs and models are found.
func TestLongModelHoldsUpNoSearch(t *testing.T) {
	x := openPulling(t)
	url := "/mlflow/v1.0" + x.ws + "/api/2.0/mlflow/"
	for i, less := range []int{60, 100, 140, 1000} {
		x.as(x.admin, "PUT", fmt.Sprintf("%s/models/m/versions/%d", x.ws, i+1), props("modelUri", "https://h/"+strings.Repeat("x", 1<<20-less)))
		x.as(x.admin, "POST", url+"runs/search", map[string]any{"experiment_ids": []string{"0"}}, "Content-Type", "application/json").want(200)
		x.as(x.admin, "GET", url+"registered-models/search", nil).want(200)
	}
}
