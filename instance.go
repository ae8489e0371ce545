package berth

import "time"

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
