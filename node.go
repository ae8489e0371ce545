package berth

import "time"

// NodeState is a node's state as Azure names it.
type NodeState string

// The states of a node.
const (
	NodePreparing NodeState = "preparing" // asked for, not there yet
	NodeIdle      NodeState = "idle"
	NodeRunning   NodeState = "running"  // has tasks
	NodeUnusable  NodeState = "unusable" // it could not be made; Why says why
	NodeLeaving   NodeState = "leaving"
	NodePreempted NodeState = "preempted" // taken away; its tasks are being stopped
)

// Node is one machine of a compute, from the moment it is asked for to the moment it is gone. It is
// kept as a document of kind "nodes" whose Own is this, Parent the compute and Status the state.
type Node struct {
	Name      string    `json:"name"` // of its own within the server; good as a file name and as a host name
	Workspace string    `json:"workspace"`
	Compute   string    `json:"compute"`
	Size      string    `json:"size"`
	Family    string    `json:"family,omitempty"`
	Low       bool      `json:"low,omitempty"`
	Isolated  bool      `json:"isolated,omitempty"`
	State     NodeState `json:"state"`
	Why       string    `json:"why,omitempty"`
	VCPUs     int       `json:"vCPUs"`
	Memory    int64     `json:"memory"`          // bytes
	GPUs      []int     `json:"gpus,omitempty"`  // indices on its machine
	Slots     int       `json:"slots"`           // tasks at once
	Price     float64   `json:"price,omitempty"` // per hour when it was asked for
	Priced    bool      `json:"priced,omitempty"`
	Currency  string    `json:"currency,omitempty"` // of Price
	Created   time.Time `json:"created"`            // asked for; it costs from here
	Ready     time.Time `json:"ready,omitzero"`     // took tasks from here
	IdleSince time.Time `json:"idleSince,omitzero"`
	// User is the user it was requested for: whose job made the cluster grow, or whose instance it
	// is.
	User string `json:"user,omitempty"`
	// Evict is set while its tasks are being evicted: EvictReclaim, after which the node is
	// released, or EvictSimulate, after which it stays.
	Evict string `json:"evict,omitempty"`
	// Provider is the attached compute that makes it; empty: the server's machine. Address is where
	// tasks on other nodes of that provider reach it.
	Provider string `json:"provider,omitempty"`
	Address  string `json:"address,omitempty"`
}

// CostsFrom is when the node began to cost: when it was asked for, or, where a provider may take
// long to make it, when it was there. Zero: it costs nothing yet.
func (n Node) CostsFrom() time.Time {
	if n.Provider != "" {
		return n.Ready
	}
	return n.Created
}

// Ways to take a node away from its tasks.
const (
	EvictReclaim  = "reclaim"
	EvictSimulate = "simulate"
)

// Usable reports whether the node accepts tasks.
func (n *Node) Usable() bool { return n.Evict == "" && (n.State == NodeIdle || n.State == NodeRunning) }

// Alive reports whether the node holds resources.
func (n Node) Alive() bool { return n.State != "" }

// Says returns the reason for the node's state, or a description of the state if it has none.
func (n Node) Says() string {
	if n.Why != "" {
		return n.Why
	}
	return "the node is " + string(n.State)
}
