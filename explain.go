package berth

import "time"

// Explanation says why a job is in its current state, how it got there, and what to do.
type Explanation struct {
	Name    string    `json:"name"`
	Status  JobStatus `json:"status"`
	Reason  string    `json:"reason"` // now: of a job that waits, worked out when it was asked
	Compute string    `json:"compute"`
	Attempt int       `json:"attempt,omitempty"` // which this is, when it is not the first
	Times   Waterfall `json:"times"`
	Exit    *Exit     `json:"exit"`
	Usage   Usage     `json:"usage"`
	// Of a job that waits: how many go first, the jobs that run where it would, and those in its
	// way.
	Ahead    int       `json:"ahead"`
	Running  []string  `json:"running"`
	InTheWay []PlanJob `json:"inTheWay"`
	Starting int       `json:"starting"` // nodes of its compute that are on their way
	// Steps are those of a pipeline.
	Steps []PipelineStep `json:"steps,omitempty"`
	// Cost is the cost so far, of a pipeline with all its steps, one line for each currency. Jobs
	// on the server's own machine have none.
	Cost    []CostLine `json:"cost"`
	Advice  []string   `json:"advice"`
	History []Event    `json:"history"`
}

// ComputeExplanation says why a compute has its current number of nodes, and what to do.
type ComputeExplanation struct {
	Name  string `json:"name"`
	Type  string `json:"type"` // local, cluster, instance, serverless, attached machine
	State string `json:"state"`
	Size  string `json:"size,omitempty"`
	Tier  string `json:"tier,omitempty"`
	// Reason says why it has its current nodes or state; Short says why it has no more nodes
	// although jobs wait.
	Reason  string  `json:"reason,omitempty"`
	Short   string  `json:"short,omitempty"`
	Target  int     `json:"target"`      // nodes there should be
	Min     int     `json:"min"`         // nodes
	Max     int     `json:"max"`         // nodes
	Slots   int     `json:"slots"`       // jobs on a node at once
	Idle    float64 `json:"idleSeconds"` // how long a node may be without work
	Waiting int     `json:"waiting"`     // jobs

	Nodes []NodeExplanation `json:"nodes"`
	// Next is when the next node will be released, or the instance will stop, if nothing happens.
	Next time.Time `json:"next,omitzero"`
	// PerHour is the cost of the current nodes with known prices, and Unknown the number of nodes
	// without one.
	PerHour  float64 `json:"perHour"`
	Currency string  `json:"currency,omitempty"`
	Unknown  int     `json:"unknownPrices"`

	Warnings []string `json:"warnings"`
	Errors   []string `json:"errors"`
	Advice   []string `json:"advice"`
	History  []Event  `json:"history"`
}

// NodeExplanation is a node and what it runs.
type NodeExplanation struct {
	Name    string    `json:"name"`
	State   NodeState `json:"state"`
	Why     string    `json:"why,omitempty"`
	Jobs    []string  `json:"jobs"`
	User    string    `json:"user,omitempty"` // who it was requested for
	Created time.Time `json:"created,omitzero"`
	// IdleSince is when it became idle, and Goes when it will be released if it stays idle.
	IdleSince time.Time `json:"idleSince,omitzero"`
	Goes      time.Time `json:"goes,omitzero"`
	Price     *float64  `json:"price,omitempty"` // an hour; absent when it is not known
}
