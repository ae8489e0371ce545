package job_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/store"
)

// TestCancel: the first who asks a job to end says why; one that is over stays as it is.
func TestCancel(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var told []string
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		told = nil
		for name, status := range map[string]berth.JobStatus{"runs": berth.Running, "over": berth.Completed} {
			d := &store.Doc{Workspace: "w", Kind: "jobs", Name: name, Status: string(status), Body: json.RawMessage("{}"), Own: json.RawMessage("{}")}
			if err := tx.Insert(d); err != nil {
				return err
			}
			for _, s := range []job.Stop{{Cause: "budget", Why: "it is used up"}, {Event: "cancel requested by ann"}} {
				if err := job.Cancel(tx, d, s); err != nil {
					return err
				}
			}
			told = append(told, name+" "+d.Status+" "+string(d.Own))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"over Completed {}": true, `runs CancelRequested {"cancel":true,"stopCause":"budget","stopWhy":"it is used up"}`: true}
	got := map[string]bool{told[0]: true, told[1]: true}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	err = db.View(t.Context(), func(tx *store.Tx) error {
		events, err := tx.Events(store.EventQuery{Workspace: "w"})
		if len(events) != 1 || events[0].Reason != "it is used up" || events[0].Type != berth.EventJobCancel {
			t.Errorf("%+v", events)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
