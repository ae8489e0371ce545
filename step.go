package berth

import "time"

// PipelineStep is one step of a pipeline job: which job runs it, and how far it is.
type PipelineStep struct {
	Node   string    `json:"node"`             // its name in the pipeline
	Job    string    `json:"job,omitempty"`    // the job that runs it; empty until it has begun
	Status JobStatus `json:"status,omitempty"` // of that job; empty while the step waits for others
	Reason string    `json:"reason,omitempty"` // why it ended as it did
	Began  time.Time `json:"began,omitzero"`
	Ended  time.Time `json:"ended,omitzero"`
	// FirstLine and LastLine are where the pipeline's log tells of its beginning and its end,
	// counted from 1.
	FirstLine int `json:"firstLine,omitempty"`
	LastLine  int `json:"lastLine,omitempty"`
	// Reserved is what of the pipeline's reservation is for this step, until it begins.
	Reserved float64 `json:"reserved,omitempty"`
}
