package track_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// written is how many bytes of a run are written with each change.
func (s *server) written(run string) (n int) {
	s.t.Helper()
	err := s.db.View(s.t.Context(), func(tx *store.Tx) error {
		d, err := tx.Get(s.ws.Key, "mlflow/runs", run, "")
		if err == nil {
			n = len(d.Own)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// TestLongDatasets: a dataset may be as long as MLflow lets it be, and yet a change of its run
// writes little. Its texts are in answers, also after a restart, and go with the run.
func TestLongDatasets(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	run := s.newRun("0", nil)
	log := func(status int, name string, schema, profile int) obj {
		t.Helper()
		d := obj{"name": name, "digest": "1", "source_type": "local", "source": "here", "schema": strings.Repeat("s", schema), "profile": strings.Repeat("p", profile)}
		return s.want(status, "POST", "runs/log-inputs", obj{"run_id": run, "datasets": []obj{{"dataset": d, "tags": []obj{{"key": "mlflow.data.context", "value": "train"}}}}})
	}
	log(200, "short", 10, 10)
	log(200, "long", 1048575, 16777215)
	log(200, "long", 1048575, 16777215) // it is known
	m := log(400, "more", 0, 16777215)
	if words := fmt.Sprint(m["message"]); m["error_code"] != "INVALID_PARAMETER_VALUE" || !strings.Contains(words, "more than 20 MiB of datasets") {
		t.Errorf("%v", m)
	}
	log(400, "longer", 0, 16777216)
	s.must("POST", "runs/set-tag", obj{"run_id": run, "key": "k", "value": "v"})
	if n := s.written(run); n > 2000 {
		t.Errorf("a change writes %d bytes", n)
	}
	check := func(r any) {
		t.Helper()
		var got []string
		for _, in := range at(r, "inputs", "dataset_inputs").([]any) {
			d := at(in, "dataset")
			got = append(got, fmt.Sprint(at(d, "name"), at(d, "source"), len(at(d, "schema").(string)), len(at(d, "profile").(string)), at(in, "tags", 0, "value"), at(in, "apart")))
		}
		if want := "[shorthere10 10train<nil> longhere1048575 16777215train<nil>]"; fmt.Sprint(got) != want {
			t.Errorf("datasets are %v, not %v", got, want)
		}
	}
	for range 2 {
		check(at(s.must("GET", "runs/get?run_id="+run, nil), "run"))
		found := s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": "datasets.name = 'long' AND datasets.context = 'train'"})
		check(at(found, "runs", 0))
		s.stop()
		s = start(t, dir)
	}
	s.must("POST", "runs/delete", obj{"run_id": run})
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != 1 || err != nil {
		t.Fatalf("%d runs were removed: %v", n, err)
	}
	err := s.db.View(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Get(s.ws.Key, "mlflow/runs/datasets", run+"/2", "")
		return err
	})
	if berth.CodeOf(err) != berth.NotFound {
		t.Errorf("the texts of a run that was removed: %v", err)
	}
}

// TestSearchOfLongDatasets: a page of a search ends before its answer is too long.
func TestSearchOfLongDatasets(t *testing.T) {
	s := start(t, t.TempDir())
	const runs = 6
	for range runs {
		d := obj{"name": "d", "digest": "1", "source_type": "local", "source": "here", "profile": strings.Repeat("p", 16_000_000)}
		s.must("POST", "runs/log-inputs", obj{"run_id": s.newRun("0", nil), "datasets": []obj{{"dataset": d}}})
	}
	query := obj{"experiment_ids": []string{"0"}}
	var sizes []int
	for {
		got := s.must("POST", "runs/search", query)
		sizes = append(sizes, len(got["runs"].([]any)))
		if query["page_token"] = got["next_page_token"]; query["page_token"] == nil {
			break
		}
	}
	if fmt.Sprint(sizes) != "[2 2 2]" {
		t.Errorf("pages have %v of %d runs", sizes, runs)
	}
}
