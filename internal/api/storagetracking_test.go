package api_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/store"
)

// TestTrackingCountsAsStorage: points of metrics, and files of runs and logged models, take space
// as what they are, and are refused where the workspace is full, in MLflow's shape. Jobs that run
// go on.
func TestTrackingCountsAsStorage(t *testing.T) {
	x := openPulling(t)
	url := "/mlflow/v1.0" + x.ws + "/api/2.0/"
	call := func(token, method, path string, body any) answer {
		t.Helper()
		return x.as(token, method, url+path, body, "Content-Type", "application/json")
	}
	run := call(x.admin, "POST", "mlflow/runs/create", map[string]any{"experiment_id": "0"}).want(200).at("run.info.run_id").(string)
	model := call(x.admin, "POST", "mlflow/logged-models", map[string]any{"experiment_id": "0", "name": "m"}).want(200).at("model.info.model_id").(string)
	batch := func(run string) map[string]any {
		return map[string]any{"run_id": run, "metrics": []map[string]any{{"key": "loss", "value": 1, "timestamp": 1}}, "params": []map[string]any{{"key": "p", "value": "v"}}}
	}
	files := []string{"mlflow-artifacts/artifacts/0/" + run + "/artifacts/f", "mlflow-artifacts/artifacts/0/models/" + model + "/artifacts/f"}
	call(x.admin, "POST", "mlflow/runs/log-batch", batch(run)).want(200)
	for _, f := range files {
		call(x.admin, "PUT", f, "0123456789").want(200)
	}
	kinds := map[any]float64{}
	lines, _ := x.do("GET", x.ws+"/storage", nil).want(200).at("groups").([]any)
	for _, l := range lines {
		line := l.(map[string]any)
		kinds[line["kind"]] = line["bytes"].(float64)
	}
	if len(kinds) != 3 || kinds["artifacts"] != 20 || kinds["metrics"] == 0 || kinds["runs"] == 0 {
		t.Errorf("stored are %v", kinds)
	}
	x.do("GET", x.ws+"/storage?by=user,job", nil).want(200)
	if age := x.do("GET", x.ws+"/storage?by=age", nil).want(200); age.at("groups.2") != nil || age.at("total.ownBytes") == 20 {
		t.Errorf("by age: %s", age.raw)
	}

	other := call(x.admin, "POST", "mlflow/runs/create", map[string]any{"experiment_id": "0"}).want(200).at("run.info.run_id").(string)
	limit := 20 + int(kinds["metrics"]+kinds["runs"])
	x.do("PATCH", x.ws, map[string]any{"tags": map[string]any{"berth.storage_bytes": strconv.Itoa(limit)}}).want(200)
	if got := x.do("GET", x.ws+"/storage", nil).want(200).at("limit"); got != float64(limit) {
		t.Errorf("the limit is shown as %v, not %d", got, limit)
	}
	x.do("POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"outputs"}, "before": time.Now()}).want(200) // forgets what was measured
	x.do("PUT", x.ws+"/jobs/refused", props("jobType", "Command", "command", "true", "environmentId", "azureml:always-1.5@latest")).want(400)
	full := func(a answer) {
		t.Helper()
		if msg := fmt.Sprint(a.want(400).at("message")); a.at("error_code") != "RESOURCE_EXHAUSTED" || !strings.Contains(msg, "workspace lab stores") || !strings.Contains(msg, "`berth storage`") {
			t.Errorf("%s", a.raw)
		}
	}
	full(call(x.admin, "POST", "mlflow/runs/create", map[string]any{"experiment_id": "0"}))
	full(call(x.admin, "POST", "mlflow/runs/log-batch", batch(other)))
	full(call(x.admin, "POST", "mlflow/runs/log-metric", map[string]any{"run_id": other, "key": "loss", "value": 1, "timestamp": 1}))
	for _, f := range files {
		full(call(x.admin, "PUT", f, "0123456789"))
	}
	if got := call(x.admin, "GET", "mlflow/runs/get?run_id="+other, nil).want(200).at("run.data.params"); got != nil {
		t.Errorf("half of a batch was kept: %v", got)
	}
	full(call(x.admin, "POST", "mlflow/runs/set-tag", map[string]any{"run_id": other, "key": "k", "value": "v"}))
	call(x.admin, "POST", "mlflow/runs/update", map[string]any{"run_id": other, "status": "FINISHED", "end_time": 1}).want(200)
	call(x.token, "POST", "mlflow/runs/log-batch", batch("p")).want(200)
	call(x.admin, "DELETE", files[0], nil).want(200)
}

// TestCleanMetrics: in a full workspace users free the space of runs and models that were deleted
// before the given time, and are theirs; what is used stays, and so does what was not deleted.
func TestCleanMetrics(t *testing.T) {
	x := openPulling(t)
	ann, bob := x.house.token("ann", auth.User), x.house.token("bob", auth.User)
	url := "/mlflow/v1.0" + x.ws + "/api/2.0/"
	call := func(token, method, path string, body any) answer {
		t.Helper()
		return x.as(token, method, url+path, body, "Content-Type", "application/json")
	}
	runOf := func(token, id string, tags ...map[string]any) string {
		t.Helper()
		if id == "" {
			id = call(token, "POST", "mlflow/runs/create", map[string]any{"experiment_id": "0", "tags": tags}).want(200).at("run.info.run_id").(string)
		}
		metrics := make([]map[string]any, 1000)
		for i := range metrics {
			metrics[i] = map[string]any{"key": "loss", "value": 1 / float64(i+1), "timestamp": i, "step": i}
		}
		call(token, "POST", "mlflow/runs/log-batch", map[string]any{"run_id": id, "metrics": metrics}).want(200)
		return id
	}
	hers, his, live := runOf(ann, ""), runOf(bob, ""), runOf(ann, "")
	kept := runOf(ann, "", map[string]any{"key": "berth.keep", "value": "true"})
	registered, nested, job := runOf(ann, ""), runOf(x.token, ""), runOf(x.token, "p")
	model := call(ann, "POST", "mlflow/logged-models", map[string]any{"experiment_id": "0", "name": "m"}).want(200).at("model.info.model_id").(string)
	call(ann, "PUT", "mlflow-artifacts/artifacts/0/models/"+model+"/artifacts/f", "0123456789").want(200)
	for _, run := range []string{hers, registered} {
		call(ann, "PUT", "mlflow-artifacts/artifacts/0/"+run+"/artifacts/f", "0123456789").want(200)
	}
	call(ann, "POST", "mlflow/registered-models/create", map[string]any{"name": "m"}).want(200)
	call(ann, "POST", "mlflow/model-versions/create", map[string]any{"name": "m", "source": "runs:/" + registered + "/f", "run_id": registered}).want(200)
	for _, run := range []string{hers, kept, registered} {
		call(ann, "POST", "mlflow/runs/delete", map[string]any{"run_id": run}).want(200)
	}
	call(bob, "POST", "mlflow/runs/delete", map[string]any{"run_id": his}).want(200)
	for _, run := range []string{nested, job} {
		call(x.admin, "POST", "mlflow/runs/delete", map[string]any{"run_id": run}).want(200)
	}
	call(ann, "DELETE", "mlflow/logged-models/"+model, nil).want(200)

	stored := func() float64 {
		t.Helper()
		n, _ := x.do("GET", x.ws+"/storage?by=", nil).want(200).at("total.bytes").(float64)
		return n
	}
	clean := func(token string, before time.Time, everyone, dry bool) answer {
		t.Helper()
		return x.as(token, "POST", x.ws+"/cleanStorage", map[string]any{"kinds": []string{"metrics"}, "before": before, "everyone": everyone, "dryRun": dry})
	}
	gone := func(run string) bool {
		t.Helper()
		return call(x.admin, "GET", "mlflow/runs/get?run_id="+run, nil).status == 404
	}
	full := stored()
	x.do("PATCH", x.ws, map[string]any{"tags": map[string]any{"berth.storage_bytes": strconv.Itoa(int(full))}}).want(200)
	soon := time.Now().Add(time.Second)
	if a := clean(ann, time.Now().Add(-time.Hour), false, false).want(200); a.at("runs") != nil || a.at("kept.0") != nil {
		t.Errorf("of what was deleted later: %s", a.raw)
	}
	point := map[string]any{"run_id": live, "key": "loss", "value": 1, "timestamp": 1}
	if a := call(ann, "POST", "mlflow/runs/log-metric", point).want(400); !strings.Contains(string(a.raw), "`berth storage clean --kind metrics") {
		t.Errorf("a full workspace does not say how to free points: %s", a.raw)
	}
	if a := clean(ann, soon, false, true).want(200); a.at("runs") != 2.0 || a.at("files") != 2.0 || a.at("kept.0.runs") != 1.0 || gone(hers) {
		t.Errorf("would be removed: %s", a.raw)
	}
	clean(bob, soon, true, false).want(403)
	if a := clean(ann, soon, false, false).want(200); a.at("runs") != 2.0 || a.at("files") != 2.0 || !gone(hers) || gone(his) {
		t.Errorf("removed: %s", a.raw)
	}
	if now := stored(); now >= full-20 {
		t.Errorf("%v bytes are stored, %v before", now, full)
	}
	call(ann, "POST", "mlflow/runs/log-metric", point).want(200)

	a := clean(x.admin, soon, true, false).want(200)
	reasons := map[any]any{}
	why, _ := a.at("kept").([]any)
	for _, k := range why {
		reasons[k.(map[string]any)["reason"]] = k.(map[string]any)["runs"]
	}
	if a.at("runs") != 1.0 || !gone(his) || len(reasons) != 4 {
		t.Errorf("removed by the administrator: %s", a.raw)
	}
	for _, run := range []string{kept, registered, nested, job, live} {
		if gone(run) {
			t.Errorf("%s is gone; kept are %v", run, reasons)
		}
	}
}

// endless is a body of a request that does not end. It calls a function after the first bytes.
type endless struct {
	t     *testing.T
	n     int
	begun func()
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n == 0 {
		e.begun()
	}
	if e.n += len(p); e.n > 1<<30 {
		e.t.Error("a GiB was taken")
		return 0, io.EOF
	}
	return len(p), nil
}

// TestUploadsEndWithTheJob: the token of a job, which no limit refuses, does not upload any more
// once the job has ended, not even what was begun before. What others upload ends at the limit.
func TestUploadsEndWithTheJob(t *testing.T) {
	x := openPulling(t)
	url := "/mlflow/v1.0" + x.ws + "/api/2.0/mlflow-artifacts/artifacts/0/"
	put := func(token, run string, begun func()) int {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), "PUT", url+run+"/artifacts/f", &endless{t: t, begun: begun})
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		x.h.ServeHTTP(w, r)
		return w.Code
	}
	x.do("PATCH", x.ws, map[string]any{"tags": map[string]any{"berth.storage_bytes": "1000"}}).want(200)
	run := x.as(x.admin, "POST", "/mlflow/v1.0"+x.ws+"/api/2.0/mlflow/runs/create", map[string]any{"experiment_id": "0"}, "Content-Type", "application/json").
		want(200).at("run.info.run_id").(string)
	if code := put(x.admin, run, func() {}); code != 400 {
		t.Errorf("what exceeds the limit: %d", code)
	}
	end := func() {
		err := x.db.Update(t.Context(), func(tx *store.Tx) error {
			task, err := tx.Task("p.1")
			if err != nil {
				return err
			}
			task.State = berth.TaskDone
			return tx.SaveTask(task)
		})
		if err != nil {
			t.Error(err)
		}
	}
	for range 2 { // in the middle, and then from the beginning
		if code := put(x.token, "p", end); code != 401 {
			t.Errorf("of a job that has ended: %d", code)
		}
	}
}
