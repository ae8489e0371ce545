package track_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/berthml/berth"
)

// stages returns how many runs of an experiment are active, and how many deleted.
func (s *server) stages(experiment string) string {
	s.t.Helper()
	count := func(view string) int {
		found := s.must("POST", "runs/search", obj{"experiment_ids": []string{experiment}, "run_view_type": view})
		runs, _ := found["runs"].([]any)
		return len(runs)
	}
	return fmt.Sprint(count("ACTIVE_ONLY"), " ", count("DELETED_ONLY"))
}

// TestExperimentTakesItsRuns: deleting or restoring an experiment deletes or restores all of its
// runs, also those that were deleted or restored before by themselves. However many they are, it
// writes the experiment only, so that nobody waits for it and nothing can stop it half-way.
func TestExperimentTakesItsRuns(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	exp := s.must("POST", "experiments/create", obj{"name": "e"})["experiment_id"].(string)
	var ids []string
	for range 100 {
		ids = append(ids, s.newRun(exp, nil))
	}
	check := func(want string) {
		t.Helper()
		for range 2 { // as it is in memory, and as it is kept
			if got := s.stages(exp); got != want {
				t.Errorf("%s runs are active and deleted, want %s", got, want)
			}
			s.stop()
			s = start(t, dir)
		}
	}
	change := func(verb string) {
		t.Helper()
		before := s.db.Rev()
		s.must("POST", "experiments/"+verb, obj{"experiment_id": exp})
		if n := s.db.Rev() - before; n > berth.Rev(2) {
			t.Errorf("%s wrote %d documents", verb, n)
		}
	}
	s.must("POST", "runs/delete", obj{"run_id": ids[0]})
	check("99 1")
	change("delete")
	check("0 100")
	if stage := at(s.must("GET", "runs/get?run_id="+ids[1], nil), "run", "info", "lifecycle_stage"); stage != "deleted" {
		t.Errorf("the run is %v", stage)
	}
	for _, path := range []string{"runs/set-tag", "runs/log-parameter"} {
		s.want(http.StatusBadRequest, "POST", path, obj{"run_id": ids[1], "key": "k", "value": "v"})
	}
	s.want(http.StatusBadRequest, "POST", "runs/log-batch", obj{"run_id": ids[1], "tags": []obj{{"key": "k", "value": "v"}}})
	s.must("POST", "runs/restore", obj{"run_id": ids[2]})
	check("1 99")
	change("restore")
	check("100 0")
	s.must("POST", "runs/log-batch", obj{"run_id": ids[1], "tags": []obj{{"key": "k", "value": "v"}}})
	s.must("POST", "runs/delete", obj{"run_id": ids[3]})
	s.newRun(exp, nil)
	check("100 1")
	change("delete")
	change("restore")
	check("101 0")
	s.want(http.StatusNotFound, "POST", "experiments/restore", obj{"experiment_id": exp})
}

// TestRunsOfDeletedExperimentAreCollected: also in a workspace that nobody has used since, unless
// the experiment was restored.
func TestRunsOfDeletedExperimentAreCollected(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	exp := s.must("POST", "experiments/create", obj{"name": "e"})["experiment_id"].(string)
	id := s.newRun(exp, nil)
	s.must("POST", "experiments/delete", obj{"experiment_id": exp})
	if n, err := s.s.Collect(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Fatalf("%d runs were removed before their time: %v", n, err)
	}
	s.must("POST", "experiments/restore", obj{"experiment_id": exp})
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != 0 || err != nil {
		t.Fatalf("%d restored runs were removed: %v", n, err)
	}
	s.must("POST", "experiments/delete", obj{"experiment_id": exp})
	s.stop()
	s = start(t, dir)
	if n, err := s.s.Collect(t.Context(), time.Now().Add(time.Second)); n != 1 || err != nil {
		t.Fatalf("%d runs were removed: %v", n, err)
	}
	s.want(http.StatusNotFound, "GET", "runs/get?run_id="+id, nil)
}
