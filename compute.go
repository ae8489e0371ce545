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

// AttachedState is the state of an attached machine.
type AttachedState struct {
	// TokenHash is the SHA-256 of the agent's token, in hexadecimal. It is never shown.
	TokenHash string `json:"tokenHash,omitempty"`
	// Machine is the id of the agent that used the token first; no other agent is accepted.
	Machine   string    `json:"machine,omitempty"`
	Host      string    `json:"host,omitempty"`    // what the machine calls itself
	Version   string    `json:"version,omitempty"` // of its agent
	Connected bool      `json:"connected,omitempty"`
	Session   string    `json:"session,omitempty"` // tells the connections apart
	Since     time.Time `json:"since,omitzero"`    // when Connected became what it is
	Why       string    `json:"why,omitempty"`     // why it is not connected
	// What it could do when it was last asked:

	CPUs        float64  `json:"cpus,omitempty"`
	Memory      int64    `json:"memory,omitempty"` // bytes
	GPUs        int      `json:"gpus,omitempty"`
	OS          string   `json:"os,omitempty"`
	Arch        string   `json:"arch,omitempty"`
	Slots       int      `json:"slots,omitempty"`       // tasks at once
	Distributed bool     `json:"distributed,omitempty"` // processes of tasks can reach one another
	Address     string   `json:"address,omitempty"`     // where they do
	SharedDisk  bool     `json:"sharedDisk,omitempty"`  // tasks see the server's files
	Queues      bool     `json:"queues,omitempty"`      // it keeps tasks above its slots in line
	MaxNodes    int      `json:"maxNodes,omitempty"`    // of one job; 0 is one
	Dials       bool     `json:"dials,omitempty"`       // ports of tasks can be reached
	Warnings    []string `json:"warnings,omitempty"`
	// Machines are those of a compute that consists of several, each of which is a node.
	Machines []AttachedMachine `json:"machines,omitempty"`
	// HostKeys are the host keys first presented by a machine reached over SSH, and by its jump
	// hosts, by address.
	HostKeys map[string]string `json:"hostKeys,omitempty"`
}

// AttachedMachine is one of several machines that are attached as one compute.
type AttachedMachine struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`           // where tasks on the others reach it
	Machine string    `json:"machine,omitempty"` // the id of its agent; no other agent is accepted
	Away    string    `json:"away,omitempty"`    // why it takes no tasks; empty when it does
	Since   time.Time `json:"since,omitzero"`    // when Away became what it is
	CPUs    float64   `json:"cpus,omitempty"`
	Memory  int64     `json:"memory,omitempty"` // bytes
	GPUs    int       `json:"gpus,omitempty"`
	OS      string    `json:"os,omitempty"`
	Arch    string    `json:"arch,omitempty"`
	Slots   int       `json:"slots,omitempty"` // tasks at once
}

// Several reports whether the compute consists of several machines, each of which is a node.
func (a *AttachedState) Several() bool { return a != nil && len(a.Machines) > 0 }

// Short returns why fewer machines take tasks than there are, "" if all do.
func (a *AttachedState) Short() string {
	var away []string
	for _, m := range a.Machines {
		if m.Away != "" {
			away = append(away, m.Name+" is drained: "+m.Away)
		}
	}
	return strings.Join(away, "; ")
}

// Says returns the state of a machine in one word, and a sentence about it.
func (a *AttachedState) Says(compute string) (state, reason string) {
	if away := a.Away(compute); away != "" {
		return "Disconnected", away
	}
	return "Connected", "its machine " + a.Host + " has been connected since " + a.Since.UTC().Format(time.DateTime) + " UTC"
}

// Reached reports whether the machine is one that the server connects to, instead of one that
// connects to the server.
func (a *AttachedState) Reached() bool {
	return a != nil && a.TokenHash == "" && (a.Why != "" || a.Host != "")
}

// Unasked reports whether it is not known what the machine can do, because it has never been
// connected.
func (a *AttachedState) Unasked() bool { return a == nil || !a.Connected && a.Slots == 0 }

// Away returns why a machine takes no tasks now, "" if it does.
func (a *AttachedState) Away(compute string) string {
	switch {
	case a.Reached() && !a.Connected && a.Host == "":
		return "its machine has not been reached yet: " + a.Why
	case a == nil || a.TokenHash == "" && !a.Reached():
		return "its machine has not joined yet; `berth agent join " + compute + "` creates the file that it joins with"
	case a.Machine == "":
		return "its machine has not connected yet; run `berth agent run --join FILE` there"
	case !a.Connected:
		return "its machine " + a.Host + " has not been connected since " + a.Since.UTC().Format(time.DateTime) + " UTC: " + a.Why
	}
	return ""
}

// InstanceState is the server's own state of a compute instance.
type InstanceState struct {
	State  string    `json:"state"`  // as Azure: Creating, Running, Stopped, …
	Want   string    `json:"want"`   // Running or Stopped: what was asked for last
	Reason string    `json:"reason"` // why it is in State
	User   string    `json:"user"`   // who it belongs to
	Since  time.Time `json:"since,omitzero"`
	// LastOperation as Azure shows it.
	LastOperation *Operation `json:"lastOperation,omitempty"`
	Awake         string     `json:"awake,omitempty"`     // what kept it awake last
	AwakeAt       time.Time  `json:"awakeAt,omitzero"`    // when that was
	StopsAt       time.Time  `json:"stopsAt,omitzero"`    // when it stops if nothing happens
	SetUp         bool       `json:"setUp,omitempty"`     // the creation script ran
	Attempt       int        `json:"attempt,omitempty"`   // grows with each operation asked for
	DiskBytes     int64      `json:"diskBytes,omitempty"` // used by its home
	DiskLimit     int64      `json:"diskLimit,omitempty"`
	Warnings      []string   `json:"warnings,omitempty"`
	// Errors are the most recent errors, with the end of the relevant log.
	Errors []string `json:"errors,omitempty"`
	// Node is the instance's node, and Made the Attempt that requested it: a node of an earlier
	// attempt must be removed first.
	Node string `json:"node,omitempty"`
	Made int    `json:"made,omitempty"`
	// Runs counts the agents that were started on the node; the last one's task is named by it.
	Runs int `json:"runs,omitempty"`
	// Scheduled is the time up to which its schedules have been carried out.
	Scheduled time.Time `json:"scheduled,omitzero"`
	// Apps are the applications on it: jupyter, and the custom ones.
	Apps []InstanceApp `json:"apps,omitempty"`
	// HostKey is the public key of its ssh server.
	HostKey string `json:"hostKey,omitempty"`
}

// InstanceApp is an application of an instance.
type InstanceApp struct {
	Name  string `json:"name"`  // in its address
	Title string `json:"title"` // for people
	Path  string `json:"path,omitempty"`
	Error string `json:"error,omitempty"` // why it does not run
}

// States of an instance, as Azure names them.
const (
	InstanceCreating     = "Creating"
	InstanceCreateFailed = "CreateFailed"
	InstanceSettingUp    = "SettingUp"
	InstanceSetupFailed  = "SetupFailed"
	InstanceRunning      = "Running"
	InstanceJobRunning   = "JobRunning"
	InstanceStarting     = "Starting"
	InstanceStopping     = "Stopping"
	InstanceStopped      = "Stopped"
	InstanceRestarting   = "Restarting"
	InstanceDeleting     = "Deleting"
)

// Up reports whether the instance can be used.
func (i InstanceState) Up() bool { return i.State == InstanceRunning || i.State == InstanceJobRunning }

// Ask records a requested operation: want is Running or Stopped.
func (i *InstanceState) Ask(operation, want, trigger, reason string, now time.Time) {
	i.Want, i.Reason = want, reason
	i.Attempt++
	i.Errors, i.Scheduled = nil, now
	i.LastOperation = &Operation{Name: operation, Time: now, Status: "InProgress", Trigger: trigger}
}

// Operation is the last operation on an instance.
type Operation struct {
	Name    string    `json:"operationName"` // Create, Start, Stop, Restart, Resize, Reimage, Delete
	Time    time.Time `json:"operationTime"`
	Status  string    `json:"operationStatus"`  // InProgress, Succeeded, CreateFailed, StartFailed, …
	Trigger string    `json:"operationTrigger"` // User, Schedule, IdleShutdown; Budget, which is ours
}

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

// Size is one VM size as scheduling and pricing see it.
type Size struct {
	Name        string   `json:"name"` // Standard_DS3_v2
	Family      string   `json:"family"`
	Series      string   `json:"series"`
	VCPUs       int      `json:"vCPUs"`
	MemoryGB    float64  `json:"memoryGB"`
	GPUs        int      `json:"gpus"`
	GPU         string   `json:"gpu,omitempty"` // model
	RDMA        bool     `json:"rdma,omitempty"`
	PremiumIO   bool     `json:"premiumIO,omitempty"`
	OSDiskMB    int      `json:"osDiskMB,omitempty"`
	TempDiskMB  int      `json:"tempDiskMB,omitempty"`
	LowPriority bool     `json:"lowPriorityCapable"`
	Category    string   `json:"category"`             // General purpose, Compute optimized, …
	Restricted  bool     `json:"restricted,omitempty"` // needs an approval
	Isolated    bool     `json:"isolated,omitempty"`
	Computes    []string `json:"supportedComputeTypes"`
	Price       *float64 `json:"price,omitempty"`    // per hour, dedicated; nil is unknown
	LowPrice    *float64 `json:"lowPrice,omitempty"` // per hour, low priority; nil is unknown
	Currency    string   `json:"currency,omitempty"`
	Absent      []string `json:"absent,omitempty"`    // locations that do not have it
	Locations   []string `json:"locations,omitempty"` // the only locations that have it; empty is all
	Own         bool     `json:"own,omitempty"`       // added by an administrator
}

// Memory is MemoryGB in bytes.
func (s Size) Memory() int64 { return int64(s.MemoryGB * (1 << 30)) }

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
