package serve

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// open makes a store with the jobs of replicas of user ann: so many, and one that cannot be read.
func open(t *testing.T, replicas int) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		if err := tx.Insert(&store.Doc{Kind: "workspaces", Name: "w", Body: json.RawMessage("{}")}); err != nil {
			return err
		}
		damaged := &store.Doc{Workspace: "w", Kind: "jobs", Name: "damaged", Status: "Running", Parent: Experiment, Body: json.RawMessage("{}"), Own: json.RawMessage(`{"serves":7}`)}
		if err := tx.Insert(damaged); err != nil {
			return err
		}
		for i := range replicas {
			d := &store.Doc{Workspace: "w", Kind: "jobs", Name: "r" + string(rune('0'+i)), Status: "Running", Parent: Experiment, CreatedBy: "ann", Body: json.RawMessage("{}")}
			if err := store.SetState(d, berth.JobState{Compute: berth.LocalCompute, Serves: "E/Blue"}); err != nil {
				return err
			}
			if err := tx.Insert(d); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// TestUndecodableJob: a job that cannot be read does not keep the others from being found.
func TestUndecodableJob(t *testing.T) {
	err := open(t, 2).View(t.Context(), func(tx *store.Tx) error {
		jobs, err := replicaJobs(tx, "w")
		if len(jobs) != 2 || jobs[0].of != (key{"w", "e", "blue"}) {
			t.Errorf("found %+v", jobs)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestReplicasOfUser: a user has so many replicas on the machine and no more; others are not
// concerned.
func TestReplicasOfUser(t *testing.T) {
	for replicas, want := range map[int]berth.Code{maxReplicas - 1: "", maxReplicas: berth.Limit} {
		err := open(t, replicas).View(t.Context(), func(tx *store.Tx) error {
			if code := berth.CodeOf(room(tx, "ann")); code != want {
				t.Errorf("with %d: %q, want %q", replicas, code, want)
			}
			return room(tx, "bob")
		})
		if err != nil {
			t.Error(err)
		}
	}
}
