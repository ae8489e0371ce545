// Package job changes the documents of jobs where several parts of the server do: users, budgets, instances and pipelines all ask jobs
// to end.
package job

import (
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// Stop says why a job is asked to end.
type Stop struct {
	// Cause and Why are for Exit.Cause and the reason of the job once it has ended; both are empty where its user asked.
	Cause, Why string
	// Event is the reason of the event; empty is Why.
	Event string
}

// Cancel asks the job of a document to end, and writes it. It changes nothing when the job is over or was asked before.
func Cancel(tx *store.Tx, d *store.Doc, s Stop) error {
	if berth.JobStatus(d.Status).Terminal() {
		return nil
	}
	var st berth.JobState
	if err := json.Unmarshal(d.Own, &st); err != nil {
		return berth.Errorf(berth.Internal, "the state of job %s cannot be read: %w", d.Name, err)
	}
	if st.Cancel {
		return nil
	}
	st.Cancel, st.StopCause, st.StopWhy = true, s.Cause, s.Why
	own, err := json.Marshal(st)
	if err != nil {
		return err
	}
	d.Own, d.Status = own, string(berth.CancelRequested)
	if s.Event == "" {
		s.Event = s.Why
	}
	tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "jobs/" + d.Name, Type: berth.EventJobCancel, Reason: s.Event})
	return tx.Save(d)
}
