package berth

// CancelJobs selects the jobs of a workspace that one call cancels: those that are named, or all of
// the caller's that have not ended, optionally of one experiment only.
type CancelJobs struct {
	Names      []string `json:"names,omitempty"`
	All        bool     `json:"all,omitempty"`
	Experiment string   `json:"experimentName,omitempty"`
	Everyone   bool     `json:"everyone,omitempty"` // with All or Experiment: those of other users too
}

// CanceledJobs is the result of CancelJobs.
type CanceledJobs struct {
	Asked   int      `json:"asked"`             // how many are asked to end
	Ended   []string `json:"ended,omitempty"`   // of those that were named: they had ended before
	Missing []string `json:"missing,omitempty"` // of those that were named: there are none
}
