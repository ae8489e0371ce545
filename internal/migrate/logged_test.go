package migrate_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berthml/berth/internal/migrate"
)

// logged makes a logged model.
func (s *space) logged(name, experiment, run string) string {
	s.t.Helper()
	return at(s.must("POST", "logged-models", obj{"experiment_id": experiment, "name": name, "source_run_id": run}), "model", "info", "model_id").(string)
}

func (s *space) newRun(experiment string) string {
	s.t.Helper()
	return at(s.must("POST", "runs/create", obj{"experiment_id": experiment, "start_time": 1}), "run", "info", "run_id").(string)
}

// TestStatesOfLoggedModels: a logged model has the state here that it has in the source, also when
// that changed since the last import.
func TestStatesOfLoggedModels(t *testing.T) {
	there, here := newSpace(t), newSpace(t)
	const pending, ready, failed = "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"
	state := func(id string) any { return at(here.must("GET", "logged-models/"+id, nil), "model", "info", "status") }
	end := func(id, status string) {
		there.must("PATCH", "logged-models/"+id, obj{"model_id": id, "status": status})
	}
	a, b, c := there.logged("a", "0", ""), there.logged("b", "0", ""), there.logged("c", "0", "")
	end(b, ready)
	end(c, failed)
	here.mustBring(there.source())
	if got := []any{state(a), state(b), state(c)}; !slices.Equal(got, []any{pending, ready, failed}) {
		t.Errorf("the states are %v", got)
	}
	end(a, ready)
	here.mustBring(there.source())
	if got := state(a); got != ready {
		t.Errorf("after another import: %v", got)
	}
}

// TestStatesInFolders: the files have states by number or by name. A state that is none is named.
func TestStatesInFolders(t *testing.T) {
	dir, here := t.TempDir(), newSpace(t)
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0/meta.yaml", "experiment_id: '0'\nname: e\n")
	want := map[string]string{}
	for id, s := range map[string]struct{ written, want string }{
		"m-00000000000000000000000000000001": {"1", "LOGGED_MODEL_PENDING"},
		"m-00000000000000000000000000000002": {"2", "LOGGED_MODEL_READY"},
		"m-00000000000000000000000000000003": {"READY", "LOGGED_MODEL_READY"},
		"m-00000000000000000000000000000004": {"FAILED", "LOGGED_MODEL_UPLOAD_FAILED"},
		"m-00000000000000000000000000000005": {"lost", ""},
	} {
		write("0/models/"+id+"/meta.yaml", "model_id: "+id+"\nname: x\nstatus: "+s.written+"\n")
		want[id] = s.want
	}
	from, err := migrate.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := here.bring(from)
	const lost = "logged model m-00000000000000000000000000000005: 0/models/m-00000000000000000000000000000005/meta.yaml: lost is not the status of a logged model"
	if err != nil || !slices.Equal(n.NotImported, []string{lost}) {
		t.Errorf("%v, not imported: %q", err, n.NotImported)
	}
	for id, state := range want {
		if state == "" {
			continue
		}
		if got := at(here.must("GET", "logged-models/"+id, nil), "model", "info", "status"); got != state {
			t.Errorf("%s is %v, want %s", id, got, state)
		}
	}
}

// TestMetricsOfLoggedModels: a logged model has the metrics that any run has measured, also one of
// another experiment, one that is not imported, and one that has not changed since.
func TestMetricsOfLoggedModels(t *testing.T) {
	there, here := newSpace(t), newSpace(t)
	other := there.must("POST", "experiments/create", obj{"name": "other"})["experiment_id"].(string)
	own, elsewhere, gone := there.newRun("0"), there.newRun(other), there.newRun("0")
	model := there.logged("m", "0", own)
	measure := func(run string, step int) {
		there.must("POST", "runs/log-metric", obj{"run_id": run, "key": "acc", "value": 0.5, "timestamp": 1, "step": step, "model_id": model, "dataset_name": "d", "dataset_digest": "1"})
	}
	for step := range 1001 {
		measure(gone, step)
	}
	measure(own, 1)
	measure(elsewhere, 2)
	there.must("POST", "runs/delete", obj{"run_id": gone})
	metrics := func(s *space) []string {
		list, _ := at(s.must("GET", "logged-models/"+model, nil), "model", "data", "metrics").([]any)
		var out []string
		for _, m := range list {
			out = append(out, text(m))
		}
		slices.Sort(out)
		return out
	}
	for step := range 2 {
		here.mustBring(there.source())
		got, want := metrics(here), metrics(there)
		if len(want) != 1003+step || !slices.Equal(got, want) {
			t.Errorf("the model has %d points, want %d", len(got), len(want))
		}
		if n := here.imports.Swap(0); n != 1 {
			t.Errorf("the model's document was sent %d times", n)
		}
		measure(elsewhere, 3+step)
	}
	here.mustBring(there.source())
	if n := here.mustBring(there.source()); n.Points != 0 {
		t.Errorf("another import of the same brought %d points", n.Points)
	}
}
