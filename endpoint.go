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

// EventDeployment says that a deployment or a replica of it changed.
const EventDeployment = "deployment.state"

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
	Replicas []Replica `json:"replicas,omitempty"`
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
