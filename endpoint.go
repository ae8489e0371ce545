package berth

import (
	"encoding/json"
	"time"
)

// EndpointRoot is where online endpoints answer, below the server's own address:
// EndpointRoot{subscription}/{group}/{workspace}/{endpoint}/… .
const EndpointRoot = "/berth/endpoints/"

// EndpointPath is where an endpoint of the workspace answers, with a slash at the end.
func (w Workspace) EndpointPath(name string) string {
	return EndpointRoot + w.Subscription + "/" + w.Group + "/" + w.Name + "/" + name + "/"
}

// DeploymentHeader names the deployment a request is for, and in an answer the one that gave it.
const DeploymentHeader = "Azureml-Model-Deployment"

// EventDeployment says that a deployment or a replica of it changed, and EventDemand that requests
// wait for a deployment that has no replica for them.
const (
	EventDeployment = "deployment.state"
	EventDemand     = "deployment.demand"
)

// The states of a deployment, as Azure names them.
const (
	DeploymentCreating  = "Creating"
	DeploymentUpdating  = "Updating"
	DeploymentSucceeded = "Succeeded"
	DeploymentFailed    = "Failed"
)

// DeploymentState is the server's own state of an online deployment, stored next to the client's
// document.
type DeploymentState struct {
	State  string `json:"provisioningState"`
	Error  string `json:"error,omitempty"`  // why it failed
	Reason string `json:"reason,omitempty"` // of its state: one true sentence
	// Admin says that an administrator deployed it last, see JobState.Admin.
	Admin bool `json:"admin,omitempty"`
	// Good is what its replicas last became ready with, and Previous what was Good before that.
	Good     *Revision `json:"good,omitempty"`
	Previous *Revision `json:"previous,omitempty"`
	// GoodBody and PreviousBody are the documents that asked for them.
	GoodBody     json.RawMessage `json:"goodBody,omitempty"`
	PreviousBody json.RawMessage `json:"previousBody,omitempty"`
	Replicas     []Replica       `json:"replicas,omitempty"`
	// Wanted is how many replicas there should be, as decided last, and WantedWhy why.
	Wanted    *int   `json:"wanted,omitempty"`
	WantedWhy string `json:"wantedWhy,omitempty"`
	// Deaths is how many replicas ended by themselves in a row since one was ready, and LastDeath
	// when and why the last did.
	Deaths    int       `json:"deaths,omitempty"`
	LastDeath time.Time `json:"lastDeath,omitzero"`
	DeathWhy  string    `json:"deathWhy,omitempty"`
}

// Revision is one form of a deployment: what a replica of it runs.
type Revision struct {
	ID      string          `json:"id"`      // a hash of Job
	Job     json.RawMessage `json:"job"`     // properties of the job of a replica
	Workers int             `json:"workers"` // requests a replica answers at once
	Pure    bool            `json:"pure,omitempty"`
	// Score is the path at which its server takes what is sent to /score; empty is /score.
	Score string `json:"score,omitempty"`
}

// The states of a replica.
const (
	ReplicaStarting = "starting"
	ReplicaReady    = "ready"
	ReplicaDraining = "draining" // it gets no more requests, and stops when it has answered the last
)

// Replica is one process of a deployment that answers requests. It is a job that does not end.
type Replica struct {
	Job      string `json:"job"`
	Revision string `json:"revision"`
	State    string `json:"state"`
	// Addresses are those of its workers, host:port. Each answers one request at a time.
	Addresses []string  `json:"addresses,omitempty"`
	Pure      bool      `json:"pure,omitempty"` // a request that it may have begun can be sent to another
	Since     time.Time `json:"since"`
}

// ServingStats is what a server counted of the requests for a deployment since it started.
// Latencies are those of the last minute, in milliseconds.
type ServingStats struct {
	Requests      int64            `json:"requests"`
	Errors        int64            `json:"errors"` // answered with 400 or more
	Statuses      map[string]int64 `json:"statuses"`
	InFlight      int              `json:"inFlight"` // requests that workers have
	Waiting       int              `json:"waiting"`  // requests that wait for a worker
	Workers       int              `json:"workers"`  // of replicas that are ready
	BusySeconds   float64          `json:"busySeconds"`
	QueuedSeconds float64          `json:"queuedSeconds"`
	Recent        int64            `json:"recent"` // requests that the latencies are of
	P50           float64          `json:"p50Ms"`
	P90           float64          `json:"p90Ms"`
	P99           float64          `json:"p99Ms"`
	Worst         float64          `json:"worstMs"`
	Last          time.Time        `json:"last,omitzero"` // when the last request came or was answered
}

// DeploymentMetrics is what a deployment does and uses now.
type DeploymentMetrics struct {
	Endpoint   string         `json:"endpoint"`
	Deployment string         `json:"deployment"`
	State      string         `json:"state"`
	Traffic    int            `json:"traffic"` // percent
	Stats      ServingStats   `json:"stats"`
	Replicas   []ReplicaUsage `json:"replicas"`
}

// ReplicaUsage is a replica and what it used when it was last measured.
type ReplicaUsage struct {
	Job   string `json:"job"`
	State string `json:"state"`
	Usage Usage  `json:"usage"`
}

// EndpointExplanation says how an endpoint answers, why its deployments have as many replicas as
// they have, and how long the last start took.
type EndpointExplanation struct {
	Name        string                  `json:"name"`
	ScoringURI  string                  `json:"scoringUri"`
	AuthMode    string                  `json:"authMode"`
	Traffic     map[string]int          `json:"traffic"`
	Deployments []DeploymentExplanation `json:"deployments"`
	Advice      []string                `json:"advice"`
}

// DeploymentExplanation is the part of one deployment.
type DeploymentExplanation struct {
	Name     string         `json:"name"`
	State    string         `json:"state"`
	Reason   string         `json:"reason"`
	Error    string         `json:"error,omitempty"`
	Compute  string         `json:"compute"`
	Wanted   int            `json:"wanted"` // replicas there should be
	Why      string         `json:"why"`    // there should be so many
	Replicas []ReplicaUsage `json:"replicas"`
	LastDied string         `json:"lastDied,omitempty"` // why the last replica ended by itself
	Start    []StartPhase   `json:"start"`              // of the replica that started last
	Stats    ServingStats   `json:"stats"`
	History  []Event        `json:"history"`
}

// StartPhase is a part of the start of a replica.
type StartPhase struct {
	Name string  `json:"name"`
	Ms   float64 `json:"ms"`
}

// BatchRoot is where batch endpoints are invoked, below the server's own address:
// BatchRoot{subscription}/{group}/{workspace}/{endpoint}/jobs .
const BatchRoot = "/berth/batch/"

// BatchPath is where a batch endpoint of the workspace is invoked.
func (w Workspace) BatchPath(name string) string {
	return BatchRoot + w.Subscription + "/" + w.Group + "/" + w.Name + "/" + name + "/jobs"
}
