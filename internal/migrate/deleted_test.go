package migrate_test

import (
	"slices"
	"testing"

	"github.com/berthml/berth/internal/migrate"
)

// TestDeletedHere: what was imported and then deleted here is named each time, also if it has not
// changed in the source, and is neither brought back nor counted as unchanged. Registered versions
// of its files are not affected.
func TestDeletedHere(t *testing.T) {
	there, here := newSpace(t), newSpace(t)
	run, other, model := there.newRun("0"), there.newRun("0"), there.logged("m", "0", "")
	there.must("POST", "registered-models/create", obj{"name": "M"})
	there.must("POST", "model-versions/create", obj{"name": "M", "source": "mlflow-artifacts:/0/" + run + "/artifacts/model", "run_id": run})
	here.mustBring(there.source())
	here.must("POST", "runs/delete", obj{"run_id": run})
	here.must("DELETE", "logged-models/"+model, nil)
	want := []string{
		"logged model " + model + ": Logged model " + model + " was deleted in this workspace",
		"run " + run + ": it was deleted in this workspace; restore it to import it again",
	}
	for range 2 {
		n, _, err := here.bring(there.source())
		if err != nil || !slices.Equal(n.NotImported, want) || n.Runs != 1 || n.Logged != 0 || n.Unchanged != 1 || n.Points != 0 {
			t.Errorf("%v, %+v", err, n)
		}
		if got := here.must("GET", "runs/get?run_id="+run, nil); at(got, "run", "info", "lifecycle_stage") != "deleted" {
			t.Errorf("the run is %v", got)
		}
		there.must("POST", "runs/log-metric", obj{"run_id": run, "key": "m", "value": 1, "timestamp": 1})
	}
	n, err := migrate.Copy(t.Context(), there.source(), here.to, migrate.Options{Full: true, Say: t.Logf})
	if err != nil || !slices.Equal(n.NotImported, want) {
		t.Errorf("in full: %v, %q", err, n.NotImported)
	}
	here.must("POST", "runs/restore", obj{"run_id": run})
	n, _, err = here.bring(there.source())
	if err != nil || !slices.Equal(n.NotImported, want[:1]) || n.Unchanged != 1 || n.Points != 1 {
		t.Errorf("after it was restored: %v, %+v", err, n)
	}
	here.must("GET", "runs/get?run_id="+other, nil)
}
