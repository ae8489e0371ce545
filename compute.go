package berth

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// LocalCompute is the compute that always exists: the machine the server runs on. Its driver says
// what it can do (driver.Info); its name is compared by [IsLocal] only.
const LocalCompute = "local"

// IsLocal reports whether name is that of LocalCompute.
func IsLocal(name string) bool { return strings.EqualFold(name, LocalCompute) }

// Compute types, as Azure names them. Compare with EqualFold.
const (
	TypeCluster  = "AmlCompute"
	TypeInstance = "ComputeInstance"
	TypeMachine  = "VirtualMachine" // attached; ComputeProps.Driver says how it is reached
)

// How an attached machine is reached.
const (
	// ConnectionSSH is that of Azure's virtual machines: the server connects to them.
	ConnectionSSH = "ssh"
	// ConnectionAgent is the connection of a machine whose agent connects to the server. Azure has
	// no such field, but its clients preserve unknown fields.
	ConnectionAgent = "agent"
)

// ComputeProps is the typed view of a compute's properties: only what is needed to run it.
type ComputeProps struct {
	ComputeType string `json:"computeType"`
	Properties  struct {
		VMSize        string         `json:"vmSize"`
		VMPriority    string         `json:"vmPriority"` // Dedicated, LowPriority; empty is Dedicated
		ScaleSettings *ScaleSettings `json:"scaleSettings"`
		Idle          string         `json:"idleTimeBeforeShutdown"` // of an instance
		Connection    string         `json:"connection"`             // of an attached machine; empty is ConnectionSSH
		Account       struct {
			Username string `json:"username"`
		} `json:"administratorAccount"` // of an attached machine that the server connects to
		AgentKey string `json:"agentKey"` // by which the server logs in there, from an SSH agent of its own
	} `json:"properties"`
}

// ScaleSettings is how many nodes a cluster has, and how long one of them may be idle.
type ScaleSettings struct {
	MaxNodeCount int    `json:"maxNodeCount"`
	MinNodeCount int    `json:"minNodeCount"`
	IdleTime     string `json:"nodeIdleTimeBeforeScaleDown"` // ISO 8601
}

// Driver is the type of driver that runs the tasks of a compute of this name, in lower case: see
// package driver/all.
func (p ComputeProps) Driver(name string) string {
	switch {
	case IsLocal(name):
		return LocalCompute
	case strings.EqualFold(p.ComputeType, TypeMachine) && p.Properties.Connection != "":
		return strings.ToLower(p.Properties.Connection)
	case strings.EqualFold(p.ComputeType, TypeMachine):
		return ConnectionSSH
	}
	return strings.ToLower(p.ComputeType)
}

// Attached reports whether the compute is a user's own machine, of whatever type and however it is
// connected: the server neither creates nor releases it, and it costs nothing here. It was accepted
// because there is a driver for it. The server's own machine has neither a connection nor an
// account.
func (p ComputeProps) Attached() bool {
	if strings.EqualFold(p.ComputeType, TypeMachine) {
		return p.Properties.Connection != "" || p.Properties.Account.Username != ""
	}
	return p.ComputeType != "" && !p.Cluster() && !p.Instance()
}

// Cluster reports whether the server creates and releases the nodes of the compute.
func (p ComputeProps) Cluster() bool { return strings.EqualFold(p.ComputeType, TypeCluster) }

// Instance reports whether the compute is an instance, whose single node has its own loop.
func (p ComputeProps) Instance() bool { return strings.EqualFold(p.ComputeType, TypeInstance) }

// Low reports whether the compute's nodes may be preempted at any time.
func (p ComputeProps) Low() bool { return strings.EqualFold(p.Properties.VMPriority, "LowPriority") }

// Tags are a compute's tags as Berth reads them. Values that are not scalars are ignored, so that
// the compute can be read whatever a client put there.
type Tags map[string]Scalar

// UnmarshalJSON never fails.
func (t *Tags) UnmarshalJSON(b []byte) error {
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) != nil {
		return nil //nolint:nilerr // the point of it
	}
	*t = Tags{}
	for k, v := range all {
		var s Scalar
		if s.UnmarshalJSON(v) == nil {
			(*t)[k] = s
		}
	}
	return nil
}

// Tags of a compute that Berth reads. Azure has no field for these; tags are kept by every client.
const (
	// TagJobsPerNode is how many jobs share a node; the default is 1.
	TagJobsPerNode = "berth.jobs_per_node"
	// TagShared, if "true", lets other users run jobs on a machine attached over SSH.
	TagShared = "berth.shared"
	// TagPlacement is "pack" (the default: fill nodes in use first) or "spread".
	TagPlacement = "berth.placement"
	// TagProvider names the attached compute that makes the nodes of a cluster. Without it they are
	// made on the server's machine.
	TagProvider = "berth.provider"
)

// PoolSpec is what a compute's document says about its nodes.
type PoolSpec struct {
	ComputeProps
	Min, Max int
	Idle     time.Duration // how long a node without tasks is kept
	Slots    int           // tasks that share a node
	Spread   bool          // tasks go to the emptiest node
	Provider string        // the attached compute that makes the nodes; empty: the server's machine
}

// idleDefault is Azure's idle time for clusters that do not say.
const idleDefault = 120 * time.Second

// ReadPool reads a compute's document.
func ReadPool(body []byte) (PoolSpec, error) {
	var v struct {
		Tags       Tags         `json:"tags"`
		Properties ComputeProps `json:"properties"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return PoolSpec{}, err
	}
	s := PoolSpec{ComputeProps: v.Properties, Max: 1, Slots: 1}
	if !s.Cluster() {
		return s, nil
	}
	s.Idle = idleDefault
	if n, err := strconv.Atoi(string(v.Tags[TagJobsPerNode])); err == nil && n > 1 {
		s.Slots = n
	}
	s.Spread = strings.EqualFold(string(v.Tags[TagPlacement]), "spread")
	s.Provider = string(v.Tags[TagProvider])
	if sc := s.Properties.ScaleSettings; sc != nil {
		s.Min, s.Max = sc.MinNodeCount, sc.MaxNodeCount
		if sc.IdleTime != "" {
			var err error
			if s.Idle, err = ParseDuration(sc.IdleTime); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// ComputeDeleting is the provisioning state of a compute that still has resources to release.
const ComputeDeleting = "Deleting"

// ComputeState is the server's own state of a compute, stored next to the client's document.
type ComputeState struct {
	// State is the provisioning state, "" for Succeeded: Creating, Updating, Deleting, Failed.
	State string `json:"provisioningState,omitempty"`
	Error string `json:"error,omitempty"` // why State is Failed
	// Secrets are encrypted properties, see the API's table.
	Secrets json.RawMessage `json:"secrets,omitempty"`

	// Of a cluster:

	Allocation string    `json:"allocation,omitempty"` // Steady, Resizing
	Changed    time.Time `json:"changed,omitzero"`     // when Allocation became what it is
	Target     int       `json:"target,omitempty"`     // how many nodes there should be
	Reason     string    `json:"reason,omitempty"`     // why: one true sentence
	Short      string    `json:"short,omitempty"`      // why there are fewer nodes than jobs ask for
	Warnings   []string  `json:"warnings,omitempty"`   // overcommitment and the like
	IdleCost   string    `json:"idleCost,omitempty"`   // what it costs while nobody uses it; empty when that is nothing
	Errors     []string  `json:"errors,omitempty"`     // of the last resize
	Drain      bool      `json:"drain,omitempty"`      // deleted with jobs running: they end first
	Serverless bool      `json:"serverless,omitempty"` // made for jobs without a compute, and removed after them

	// Of an instance:

	Instance *InstanceState `json:"instance,omitempty"`

	// Of an attached machine:

	Attached *AttachedState `json:"attached,omitempty"`
}

// Deleting reports whether the compute is being deleted.
func (s ComputeState) Deleting() bool { return s.State == ComputeDeleting }

// Down returns why a compute takes no job of so many nodes now, as the kind of a PlanLimit and a
// sentence; both are empty if it does.
func (s ComputeState) Down(name string, spec PoolSpec, nodes int) (kind, why string) {
	switch {
	case s.Deleting():
		return LimitDeleting, "it is being deleted"
	case spec.Attached():
		if why = s.Attached.Away(name); why != "" {
			kind = LimitAway
		}
		return kind, why
	case spec.Instance() && nodes == 0:
		state := "not running"
		if i := s.Instance; i != nil && i.State != "" {
			state = i.State
		}
		return LimitStopped, "the instance is " + state + "; `berth compute start -n " + name + "` starts it"
	}
	return "", ""
}

// Events of computes. Their subject is computes/NAME.
const (
	EventNode     = "node.state"       // Data: {"node": …, "state": …}
	EventResize   = "compute.resize"   // Data: {"from": …, "to": …}
	EventCompute  = "compute.state"    // an instance's or cluster's state; Data: {"state": …}
	EventComputes = "compute.asked"    // an action on a compute was asked for: evict, stop, start
	EventQuota    = "quota.changed"    // a limit was set, raised or has run out; Subject: quotas/…
	EventWarning  = "compute.warning"  // overcommitment, a disk that fills up
	EventActivity = "compute.activity" // what an instance does: setup progress, idle signals
)
