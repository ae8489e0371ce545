// Package job changes the documents of jobs where several parts of the server do: users, budgets,
// instances and pipelines all ask jobs to end.
package job

import (
	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// State is what the server keeps of a job beside its document.
func State(d *store.Doc) (berth.JobState, error) { return store.State[berth.JobState](d) }

// Stop says why a job is asked to end.
type Stop struct {
	// Cause and Why are for Exit.Cause and the reason of the job once it has ended; both are empty
	// where its user asked.
	Cause, Why string
	// Event is the reason of the event; empty is Why.
	Event string
}

// Cancel asks the job of a document to end, and writes it. It changes nothing when the job is over
// or was asked before.
func Cancel(tx *store.Tx, d *store.Doc, s Stop) error {
	if berth.JobStatus(d.Status).Terminal() {
		return nil
	}
	st, err := State(d)
	if err != nil {
		return berth.Errorf(berth.Internal, "%w", err)
	}
	if st.Cancel {
		return nil
	}
	st.Cancel, st.StopCause, st.StopWhy = true, s.Cause, s.Why
	if err := store.SetState(d, st); err != nil {
		return err
	}
	d.Status = string(berth.CancelRequested)
	if s.Event == "" {
		s.Event = s.Why
	}
	tx.Emit(berth.Event{Workspace: d.Workspace, Subject: "jobs/" + d.Name, Type: berth.EventJobCancel, Reason: s.Event})
	return tx.Save(d)
}
