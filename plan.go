package berth

import "time"

// Verdict is what would become of a job.
type Verdict string

// The verdicts of a plan.
const (
	PlanNow   Verdict = "now"   // it would start at once
	PlanSoon  Verdict = "soon"  // it would start when nodes have started, or jobs of lower priority have stopped
	PlanWait  Verdict = "wait"  // it would wait for a limit: Plan.Limits says whose
	PlanNever Verdict = "never" // as it is, it would be refused or wait for ever
)

// Plan is what would become of a job if it were submitted now. Nothing was created to find out.
type Plan struct {
	Job     string  `json:"job"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"` // one true sentence

	Compute string `json:"compute"`        // empty for a pipeline whose steps go to several
	Type    string `json:"type"`           // local, cluster, instance, serverless, pipeline
	New     bool   `json:"new"`            // the pool would be made for it
	Size    string `json:"size,omitempty"` // of the nodes
	Tier    string `json:"tier,omitempty"` // dedicated, low_priority
	Nodes   int    `json:"nodes"`          // that it needs
	Boot    int    `json:"boot"`           // of them, that have to start first

	Limits   []PlanLimit  `json:"limits"`
	Price    PlanPrice    `json:"price"`
	Duration PlanDuration `json:"duration"`
	Cost     PlanCost     `json:"cost"`
	Start    PlanStart    `json:"start"`
	Budgets  []PlanBudget `json:"budgets"`
	Warnings []string     `json:"warnings"`
	Advice   []string     `json:"advice"` // what to do, as commands where there are any

	// Steps are the plans of a pipeline's steps, each as if it were submitted now, and After the
	// steps that one has to wait for.
	Steps []Plan   `json:"steps,omitempty"`
	After []string `json:"after,omitempty"`
}

// Kinds of limits that keep a job from running.
const (
	LimitMax      = "max_instances" // the cluster cannot have more nodes
	LimitSlots    = "slots"         // every slot of the machine is in use
	LimitGang     = "gang"          // it needs more nodes than the compute can ever have
	LimitQuota    = "quota"
	LimitApproval = "approval" // the series is restricted
	LimitBudget   = "budget"
	LimitMachine  = "machine" // the machine behind the nodes has too little, or must be left alone
	LimitDeleting = "deleting"
	LimitStopped  = "stopped" // the instance does not run
	LimitAway     = "away"    // the machine is not connected
	LimitOwner    = "owner"   // the instance is somebody else's
	LimitSize     = "size"    // the compute's size is not known to the server any more
)

// PlanLimit is something that keeps a job from running.
type PlanLimit struct {
	Kind  string `json:"kind"`
	Ever  bool   `json:"ever"` // it does not go away by waiting
	Why   string `json:"why"`
	Whose string `json:"whose,omitempty"` // the compute or budget it belongs to
}

// PlanPrice is what an hour costs.
type PlanPrice struct {
	Known     bool     `json:"known"`
	PerNode   *float64 `json:"perNode,omitempty"` // an hour of one node
	PerHour   *float64 `json:"perHour,omitempty"` // an hour of the job: its nodes, or its share of a shared node
	Currency  string   `json:"currency,omitempty"`
	Dedicated *float64 `json:"dedicated,omitempty"` // an hour of one node in each tier
	Low       *float64 `json:"lowPriority,omitempty"`
}

// PlanDuration is how long the job would run.
type PlanDuration struct {
	// Basis is history, limit (its timeout, an upper bound) or unknown.
	Basis  string  `json:"basis"`
	Runs   int     `json:"runs,omitempty"`
	Of     string  `json:"of,omitempty"` // what the runs had in common with it: command, display name, experiment
	Median float64 `json:"medianSeconds,omitempty"`
	P90    float64 `json:"p90Seconds,omitempty"`
	Limit  float64 `json:"limitSeconds,omitempty"`
}

// PlanCost is what the job would cost in all.
type PlanCost struct {
	Known    bool     `json:"known"`
	Expected *float64 `json:"expected,omitempty"` // at the median of its history
	AtMost   *float64 `json:"atMost,omitempty"`   // at its timeout, or at the 90th percentile of its history
	Idle     *float64 `json:"idle,omitempty"`     // what its nodes cost after it at most, until they are given back
	Spent    *float64 `json:"history,omitempty"`  // what the runs it is estimated from cost on average, where that is known
	Currency string   `json:"currency,omitempty"`
}

// PlanStart is when the job would start.
type PlanStart struct {
	At    time.Time `json:"at,omitzero"`     // estimated; absent when nobody knows
	Basis string    `json:"basis,omitempty"` // what At follows from: limits, history
	Ahead int       `json:"ahead"`           // jobs that wait and go first
	// Jobs are those that go first or run where it would, the next to end or go first; at most ten.
	Jobs []PlanJob `json:"jobs"`
}

// PlanJob is a job that is in the way.
type PlanJob struct {
	Name   string    `json:"name"`
	User   string    `json:"user,omitempty"`
	Status string    `json:"status"` // running, waiting
	Nodes  int       `json:"nodes"`
	Ends   time.Time `json:"ends,omitzero"` // estimated
}

// PlanBudget is a budget that the job would be charged to.
type PlanBudget struct {
	Name     string  `json:"name"`
	Left     float64 `json:"left"`    // after what was spent and what is reserved
	Reserve  float64 `json:"reserve"` // what the job would reserve
	Currency string  `json:"currency"`
	Fits     bool    `json:"fits"`
	Why      string  `json:"why"`
}
