package berth

import (
	"maps"
	"strconv"
	"strings"
	"time"
)

// TaskState is the state of a task.
type TaskState string

// A task moves forward through these states only.
const (
	TaskWaiting  TaskState = "waiting"  // not placed yet; Task.Why says why
	TaskPlaced   TaskState = "placed"   // a target was chosen and the driver is asked to start it
	TaskStarting TaskState = "starting" // the runner has it: staging or preparing the environment
	TaskRunning  TaskState = "running"  // the user's process runs
	TaskEnding   TaskState = "ending"   // the process ended, outputs are being kept
	TaskDone     TaskState = "done"     // over; Task.Exit says how
)

// ServePriority is the priority of replicas of online deployments: before all jobs.
const ServePriority = 1 << 30

// rank orders the states.
var rank = map[TaskState]int{TaskWaiting: 0, TaskPlaced: 1, TaskStarting: 2, TaskRunning: 3, TaskEnding: 4, TaskDone: 5}

// Before reports whether s comes earlier in a task's life than t.
func (s TaskState) Before(t TaskState) bool { return rank[s] < rank[t] }

// Task is one process tree on one node, of one attempt at a job.
type Task struct {
	ID        TaskID    `json:"id"`
	Workspace string    `json:"workspace"` // key of the workspace
	Job       string    `json:"job"`       // name of the job
	Attempt   int       `json:"attempt"`
	Rank      int       `json:"rank,omitempty"`  // which of the attempt's nodes this is
	Count     int       `json:"count,omitempty"` // how many nodes the attempt has; 0 is 1
	Compute   string    `json:"compute"`         // name of the compute it is for
	Node      string    `json:"node,omitempty"`
	State     TaskState `json:"state"`
	// Why is the reason for its state: one true sentence.
	Why      string `json:"why,omitempty"`
	Priority int    `json:"priority,omitempty"` // higher goes first
	Spot     bool   `json:"spot,omitempty"`     // may be stopped for other work, and starts again later
	// Serves says that it is a replica of an online deployment. On a machine that nobody makes or
	// gives back it takes none of the slots, which are for jobs that end.
	Serves bool `json:"serves,omitempty"`
	Evict  bool `json:"evict,omitempty"` // it is being stopped for that reason
	GPUs   int  `json:"gpus,omitempty"`  // it asks for; 0: it does not say, NoGPUs: none
	Port   int  `json:"port,omitempty"`  // of the meeting point of its attempt
	// Limit is how long it may run; 0 is no limit.
	Limit   time.Duration `json:"limit,omitempty"`
	User    string        `json:"user,omitempty"`
	Stop    bool          `json:"stop,omitempty"` // it should end
	Created time.Time     `json:"created"`
	Seen    time.Time     `json:"seen,omitzero"` // last sign of life
	Seq     int           `json:"seq,omitempty"` // highest number of a report
	Times   Waterfall     `json:"times,omitzero"`
	Exit    *Exit         `json:"exit,omitempty"`
	Usage   Usage         `json:"usage,omitzero"` // peaks
	Kept    []string      `json:"kept,omitempty"` // as Report.Kept
	// Services is the state of the services that it runs beside its command, by name. It is
	// replaced, not changed.
	Services map[string]ServiceState `json:"services,omitempty"`
}

// NoGPUs is Task.GPUs of a task that wants none.
const NoGPUs = -1

// Gang names the attempt the task belongs to: the id of its first task.
func (t *Task) Gang() string {
	if t.Rank == 0 {
		return string(t.ID)
	}
	return strings.TrimSuffix(string(t.ID), "-"+strconv.Itoa(t.Rank))
}

// StdLog is where the output of a job goes, below its artifacts.
const StdLog = "user_logs/std_log.txt"

// ExitRunner is the exit code of a process that was to run one task and could not.
const ExitRunner = 95

// ExitNoRoom is the exit code of a process that was to run one task and could not make a directory
// for it.
const ExitNoRoom = 98

// ExitNoStep is the exit code of a process that was to start the tasks of a gang on the nodes that
// a queueing system gave it, and could not.
const ExitNoStep = 94

// ExitAway is the exit code of a process that was to run one of several tasks and could not ask its
// server which. Nothing has run of what it may have been given meanwhile.
const ExitAway = 93

// Exit says how a task ended.
type Exit struct {
	Code   int    `json:"code"`             // the process's exit code; 128+N for signal N; -1 when it never ran or is not known
	Signal string `json:"signal,omitempty"` // for example SIGKILL
	OOM    bool   `json:"oom,omitempty"`    // the kernel ended it for want of memory
	// Cause is one of "", "canceled", "timeout", "lost", "staging", "environment", "command",
	// "upload", "evicted", "peer" (another process of the job or step of its pipeline failed),
	// "budget": what ended it when it was not the process itself.
	Cause  string `json:"cause,omitempty"`
	Reason string `json:"reason,omitempty"` // one sentence for people
	// Process is the rank of the process that failed, of a task that runs several, and Log is its
	// log below user_logs/.
	Process int    `json:"process,omitempty"`
	Log     string `json:"log,omitempty"`
}

// OK reports success.
func (e *Exit) OK() bool { return e != nil && e.Code == 0 && e.Cause == "" }

// Usage is what a task used: a sample, or the peaks of all samples.
type Usage struct {
	At          time.Time `json:"at,omitzero"`
	CPUSeconds  float64   `json:"cpuSeconds,omitempty"`  // since the start
	CPUPercent  float64   `json:"cpuPercent,omitempty"`  // of one core, since the sample before
	MemoryBytes int64     `json:"memoryBytes,omitempty"` // resident, whole process tree
	ReadBytes   int64     `json:"readBytes,omitempty"`
	WriteBytes  int64     `json:"writeBytes,omitempty"`
	NetRxBytes  int64     `json:"netRxBytes,omitempty"` // of the machine or container: Linux counts no network bytes per process
	NetTxBytes  int64     `json:"netTxBytes,omitempty"`
	GPUPercent  float64   `json:"gpuPercent,omitempty"`
	GPUMemory   int64     `json:"gpuMemoryBytes,omitempty"`
}

// Launch is everything a runner needs to execute one task. It is sent to the node as a whole; the
// runner asks for nothing else.
type Launch struct {
	Task      TaskID    `json:"task"`
	Job       string    `json:"job"`
	Attempt   int       `json:"attempt"`
	Workspace Workspace `json:"workspace"`
	Submitted time.Time `json:"submitted"`
	Home      Home      `json:"home"`
	// Term is that of the server which starts it, see WithTerm and WithTermProof.
	Term      int64  `json:"term,omitempty"`
	TermProof string `json:"termProof,omitempty"`
	// Command is shell text. ${{inputs.X}} and ${{outputs.X}} in it become values and paths on the
	// node.
	Command string            `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
	Code    string            `json:"code,omitempty"` // URL of the folder of the code snapshot
	// CodeBelow is for Code what LaunchInput.Below is for its URL.
	CodeBelow string `json:"codeBelow,omitempty"`
	// CodeVersion is the version token of what is in the folder now, so that a node which has it
	// asks for nothing; empty where it has none.
	CodeVersion string                  `json:"codeVersion,omitempty"`
	Inputs      map[string]LaunchInput  `json:"inputs,omitempty"`
	Outputs     map[string]LaunchOutput `json:"outputs,omitempty"`
	// Artifacts is the URL of the folder where ./outputs, ./logs and the logs of the run are kept.
	Artifacts string `json:"artifacts,omitempty"`
	// Checked says that no input may be used before it was checked: what the command reports of it
	// counts at once.
	Checked     bool          `json:"checked,omitempty"`
	Environment LaunchEnv     `json:"environment"`
	Timeout     time.Duration `json:"timeout,omitempty"` // 0: none
	Grace       time.Duration `json:"grace,omitempty"`   // between SIGTERM and SIGKILL
	CPUs        float64       `json:"cpus,omitempty"`    // 0: no limit
	Memory      int64         `json:"memory,omitempty"`  // bytes; 0: no limit
	GPUs        []int         `json:"gpus,omitempty"`    // indices on the node's machine
	NoGPU       bool          `json:"noGPU,omitempty"`   // hide those the node has
	// GPUCount is how many GPUs the job asks for, where the target gives them out itself.
	GPUCount int `json:"gpuCount,omitempty"`
	// Stdin says where standard input comes from; nil is empty.
	Stdin   *Stdin `json:"stdin,omitempty"`
	ShmSize string `json:"shmSize,omitempty"`
	// InstanceType is what the job asks for by name, where the target has such types.
	InstanceType string   `json:"instanceType,omitempty"`
	DockerArgs   []string `json:"dockerArgs,omitempty"`
	// LogFile is set when the node shares the server's disk: standard output and error go straight
	// to this file, and no log bytes are sent.
	LogFile string `json:"logFile,omitempty"`
	// Log is the name of the log below the artifacts: StdLog, or another for one of several tasks.
	Log string `json:"log,omitempty"`
	// Node is the node it runs on, where the target has several.
	Node string `json:"node,omitempty"`
	// Group says how the processes of a distributed job find each other; nil for a job of one
	// process.
	Group *Group `json:"group,omitempty"`
	// Serves is as Task.Serves.
	Serves bool `json:"serves,omitempty"`
	// Keep is a directory on the node's machine, shared by the attempts of a job, where ./outputs
	// and the named outputs live, so that a checkpoint is there after a restart; empty when the
	// job's attempts start with nothing.
	Keep string `json:"keep,omitempty"`
	// Objects is set when the node shares the server's disk: the directory of contents by their
	// SHA-256.
	Objects string `json:"objects,omitempty"`
	// Tracking is where the command logs its metrics; nil if it cannot.
	Tracking *LaunchTracking `json:"tracking,omitempty"`
	// Services are started beside the command, and end with it; by name.
	Services map[string]LaunchService `json:"services,omitempty"`
}

// At is the launch for a task that reaches the server at another address than the server says. The
// original is not changed.
func (l Launch) At(server string) Launch {
	from, to := strings.TrimSuffix(l.Home.URL, "/"), strings.TrimSuffix(server, "/")
	move := func(u string) string {
		if rest, ok := strings.CutPrefix(u, from); ok && from != "" && (rest == "" || rest[0] == '/' || rest[0] == '?') {
			return to + rest
		}
		return u
	}
	l.Home.URL, l.Code, l.Artifacts, l.Environment.Build = move(l.Home.URL), move(l.Code), move(l.Artifacts), move(l.Environment.Build)
	if t := l.Tracking; t != nil {
		moved := *t
		moved.URI = move(t.URI)
		l.Tracking = &moved
	}
	l.Inputs, l.Outputs = maps.Clone(l.Inputs), maps.Clone(l.Outputs)
	for k, in := range l.Inputs {
		in.URL = move(in.URL)
		l.Inputs[k] = in
	}
	for k, out := range l.Outputs {
		out.URL = move(out.URL)
		l.Outputs[k] = out
	}
	return l
}

// LaunchTracking configures the MLflow client of a command.
type LaunchTracking struct {
	URI        string `json:"uri"`
	Token      string `json:"token"` // opens the run of the job, and nothing else
	Experiment string `json:"experiment"`
}

// Group is one node's part of a distributed job.
type Group struct {
	Type      string    `json:"type"` // pytorch, mpi, tensorflow, or "" for several nodes without a framework
	Node      int       `json:"node"` // rank of this node
	Nodes     []Peer    `json:"nodes"`
	Port      int       `json:"port"`   // of the meeting point on the first node; a few more after it are free too
	Secret    string    `json:"secret"` // shared by the tasks of the attempt
	Processes []Process `json:"processes"`
	// World is how many processes there are in all.
	World int `json:"world"`
	// Workers and Servers are the numbers of TensorFlow.
	Workers int `json:"workers,omitempty"`
	Servers int `json:"servers,omitempty"`
}

// Peer is a node of a distributed job.
type Peer struct {
	Name    string `json:"name"`
	Address string `json:"address"` // where its processes are reached
	Slots   int    `json:"slots"`   // processes on it
}

// Process is one process on a node.
type Process struct {
	Rank    int    `json:"rank"`
	Local   int    `json:"local"`
	Log     string `json:"log"`               // name below the artifacts
	LogFile string `json:"logFile,omitempty"` // as Launch.LogFile
}

// Home is how a runner reaches its server.
type Home struct {
	URL   string `json:"url"`
	CA    string `json:"ca,omitempty"` // PEM
	Token string `json:"token"`        // good for this task only
}

// LaunchInput is an input, resolved: a literal, or a URL the runner can read (https with a
// signature, or file).
type LaunchInput struct {
	Type  string `json:"type"`
	Mode  string `json:"mode,omitempty"`
	Value string `json:"value,omitempty"`
	URL   string `json:"url,omitempty"`
	URI   string `json:"uri,omitempty"` // as the user named it; what mode direct passes on
	// Below is the folder that links must not leave, if the URL is a file's; empty if they may.
	Below string `json:"below,omitempty"`
	// Version is as Launch.CodeVersion; Ours says that the URL is in the server's own storage.
	Version string `json:"version,omitempty"`
	Ours    bool   `json:"ours,omitempty"`
	// Outside is set when it is in storage elsewhere that a datastore opens; URL is then for
	// people.
	Outside *Outside `json:"outside,omitempty"`
	// Stream says that it is not brought to the node, but fetched while it is read; see
	// StreamProperty.
	Stream bool `json:"stream,omitempty"`
}

// LaunchOutput is an output, resolved: a URL the runner can write below.
type LaunchOutput struct {
	Type string `json:"type"`
	Mode string `json:"mode,omitempty"`
	URL  string `json:"url"`
	URI  string `json:"uri"`
	// Below and Outside are as in LaunchInput.
	Below   string   `json:"below,omitempty"`
	Outside *Outside `json:"outside,omitempty"`
}

// LaunchEnv is the environment a command runs in, resolved from the asset the job names.
type LaunchEnv struct {
	Name  string `json:"name,omitempty"` // for people
	Image string `json:"image,omitempty"`
	Conda string `json:"conda,omitempty"` // text of a conda file
	Pip   string `json:"pip,omitempty"`   // text of a requirements file
	// Build is the URL of a Docker build context; Dockerfile is relative to it. Below is as in
	// LaunchInput.
	Build      string `json:"build,omitempty"`
	Below      string `json:"below,omitempty"`
	Dockerfile string `json:"dockerfile,omitempty"`
	// Host says that the command may run on the node as it is although an image is named.
	Host bool `json:"host,omitempty"`
}

// Report is a runner's report on a task. Reports of one task have increasing Seq; a repeated one
// changes nothing.
type Report struct {
	Task  TaskID    `json:"task"`
	Token string    `json:"token,omitempty"` // of the task, where the connection's own is not
	Seq   int       `json:"seq"`
	At    time.Time `json:"at"`
	State TaskState `json:"state,omitempty"`
	// Phase is what it is doing within State: staging, environment, running, uploading.
	Phase       string    `json:"phase,omitempty"`
	Detail      string    `json:"detail,omitempty"`  // for people: "installing 12 packages"
	Staged      string    `json:"staged,omitempty"`  // for people: how code and inputs came there
	Warning     string    `json:"warning,omitempty"` // becomes an event of the job
	FirstOutput time.Time `json:"firstOutput,omitzero"`
	Times       Waterfall `json:"times,omitzero"`
	Usage       *Usage    `json:"usage,omitempty"`
	Exit        *Exit     `json:"exit,omitempty"`
	// Kept are the outputs of which something was sent or is about to be: names of outputs of the
	// job, and [OutputsFolder].
	Kept []string `json:"kept,omitempty"`
	// Services is the state of all of its services, when one has changed.
	Services map[string]ServiceState `json:"services,omitempty"`
}

// OutputsFolder stands for the folder ./outputs of the command where names of outputs are listed.
const OutputsFolder = "./outputs"

// OutputLabel is how people are told of an output of a job, or of a folder such as
// [OutputsFolder].
func OutputLabel(name string) string {
	if strings.HasPrefix(name, "./") {
		return name
	}
	return "output " + name
}

// PartialOutputs is the warning that outputs have only some of their files.
func PartialOutputs(names []string, why string) string {
	labels := make([]string, len(names))
	for i, name := range names {
		labels[i] = OutputLabel(name)
	}
	return strings.Join(labels, ", ") + ": partial, " + why
}
