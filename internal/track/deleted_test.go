package track_test

import (
	"slices"
	"testing"
	"time"

	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// TestDeletedWhileNobodyLooked: runs of jobs that were deleted while nobody looked, longer than
// events are kept, are not listed. Those that were written stay.
func TestDeletedWhileNobodyLooked(t *testing.T) {
	s := start(t, t.TempDir())
	listed := func() (ids []string) {
		t.Helper()
		found, _ := s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}})["runs"].([]any)
		for _, r := range found {
			ids = append(ids, at(r, "info", "run_id").(string))
		}
		slices.Sort(ids)
		return ids
	}
	for _, name := range []string{"kept", "logged", "stays", "unused"} {
		job := s.addJob(name, "ann", "Default")
		if name == "logged" {
			s.as(job).must("POST", "runs/log-metric", obj{"run_id": name, "key": "m", "value": 1, "timestamp": 1})
		}
	}
	if got := listed(); !slices.Equal(got, []string{"kept", "logged", "stays", "unused"}) {
		t.Fatalf("listed are %v", got)
	}
	s.s.Idle(s.ws, 2*time.Hour)
	for _, name := range []string{"kept", "logged", "unused"} {
		err := s.db.Update(t.Context(), func(tx *store.Tx) error {
			d, err := tx.Get(s.ws.Key, "jobs", name, "")
			if err == nil && name == "kept" {
				err = track.KeepRun(tx, d)
			}
			if err != nil {
				return err
			}
			return tx.Delete(s.ws.Key, "jobs", name, "")
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if got := listed(); !slices.Equal(got, []string{"kept", "logged", "stays"}) {
			t.Errorf("listed are %v", got)
		}
		s.stop()
		s = start(t, s.dir)
	}
}

// TestJobListedWithNameOfARemovedRun: a job is listed that has the name of one whose run was
// removed.
func TestJobListedWithNameOfARemovedRun(t *testing.T) {
	s := start(t, t.TempDir()).as(track.Caller{User: "ann", Write: true})
	log := obj{"run_id": "train", "key": "m", "value": 1, "timestamp": 1}
	s.as(s.addJob("train", "ann", "Default")).must("POST", "runs/log-metric", log)
	s.removeJob("train", true)
	s.addJob("train", "ann", "Default")
	if found, _ := s.must("POST", "runs/search", obj{"experiment_ids": []string{"0"}})["runs"].([]any); len(found) != 1 {
		t.Errorf("%d runs are listed", len(found))
	}
}

// TestRemovedIsForgotten: what was removed is not remembered for ever.
func TestRemovedIsForgotten(t *testing.T) {
	s := start(t, t.TempDir())
	s.must("POST", "registered-models/create", obj{"name": "m"})
	for range 20 {
		v := s.must("POST", "model-versions/create", obj{"name": "m", "source": "mlflow-artifacts:/x"})
		s.must("DELETE", "model-versions/delete", obj{"name": "m", "version": at(v, "model_version", "version")})
	}
	if n := s.s.Removals(s.ws); n > 2 {
		t.Errorf("%d things are remembered", n)
	}
}
