package berth

import (
	"encoding/json"
	"time"
)

// A Rev numbers a change of the store. Revisions grow by commit order and are never used twice.
type Rev int64

// An Event is a fact that became true in the store. Every state change is one.
type Event struct {
	Rev  Rev       `json:"rev"`
	Time time.Time `json:"time"`
	// Workspace is the key of the workspace it belongs to, empty for server-wide events.
	Workspace string `json:"workspace,omitempty"`
	// Subject is what it is about: jobs/NAME, computes/NAME, data/NAME/versions/V.
	Subject string `json:"subject"`
	// Type says what happened, for example job.created, job.status, task.phase,
	// environment.warning.
	Type string `json:"type"`
	// Reason is one true sentence for people.
	Reason string          `json:"reason,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
}

// Event types. A subscriber may rely on these; others can appear.
const (
	EventJobCreated  = "job.created"  // a job was accepted
	EventJobStatus   = "job.status"   // Data: {"status": …}
	EventJobChanged  = "job.changed"  // tags, display name, archive flag
	EventJobCancel   = "job.cancel"   // somebody asked the job to end
	EventJobStep     = "job.step"     // of a pipeline: a step began or ended. Data: a PipelineStep
	EventJobProgress = "job.progress" // of a job with mini-batches: some have ended. Data: a Work
	EventJobWarning  = "job.warning"  // something the user should know: a fallback, an overcommitment
	EventJobService  = "job.service"  // a service of a job runs, or failed. Data: {"name": …, "status": …}
	EventTaskState   = "task.state"   // Data: {"task": …, "state": …}
	EventTaskPhase   = "task.phase"   // Data: {"task": …, "phase": …, "detail": …}
	EventTaskUsage   = "task.usage"   // Data: {"task": …, "usage": …}
	EventResourcePut = "resource.put" // an asset, compute, datastore or workspace was written
	EventResourceDel = "resource.deleted"
	EventClock       = "clock.set" // the server's clock was set, and the times of the subject with it. Data: a ClockSet
)

// ClockSet says by how much the server's clock was changed; in JSON, in nanoseconds.
type ClockSet struct {
	By time.Duration `json:"by"`
}

// Shift moves times by d, except zero times.
func Shift(d time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}
