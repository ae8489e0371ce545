package berth

import (
	"encoding/json"
	"strings"
	"time"
)

// JobStatus is a job's status as Azure names it.
type JobStatus string

// The statuses of a job.
const (
	NotStarted      JobStatus = "NotStarted"
	Queued          JobStatus = "Queued"
	Preparing       JobStatus = "Preparing"
	Provisioning    JobStatus = "Provisioning"
	Starting        JobStatus = "Starting"
	Running         JobStatus = "Running"
	Finalizing      JobStatus = "Finalizing"
	CancelRequested JobStatus = "CancelRequested"
	Completed       JobStatus = "Completed"
	Failed          JobStatus = "Failed"
	Canceled        JobStatus = "Canceled"
	NotResponding   JobStatus = "NotResponding"
)

// Terminal reports whether a job in this status will never change it again.
func (s JobStatus) Terminal() bool { return s == Completed || s == Failed || s == Canceled }

// ActiveStatuses are those of a job that has not ended.
var ActiveStatuses = []JobStatus{
	NotStarted, Queued, Preparing, Provisioning, Starting, Running, Finalizing, CancelRequested, NotResponding,
}

// StatusTexts are statuses as texts, for queries.
func StatusTexts(ss []JobStatus) []string {
	out := make([]string, len(ss))
	for i, s := range ss {
		out[i] = string(s)
	}
	return out
}

// CommandJob is the typed view of a command job's properties: only what is needed to run it.
type CommandJob struct {
	JobType       string               `json:"jobType"`
	Command       string               `json:"command"`
	ComputeID     string               `json:"computeId"`
	CodeID        string               `json:"codeId"`
	EnvironmentID string               `json:"environmentId"`
	Env           map[string]Scalar    `json:"environmentVariables"`
	Inputs        map[string]JobInput  `json:"inputs"`
	Outputs       map[string]JobOutput `json:"outputs"`
	Limits        struct {
		Timeout string `json:"timeout"`
	} `json:"limits"`
	Resources      JobResources          `json:"resources"`
	Distribution   *Distribution         `json:"distribution"`
	ExperimentName string                `json:"experimentName"`
	DisplayName    string                `json:"displayName"`
	Services       map[string]JobService `json:"services"`
	QueueSettings  struct {
		JobTier  string `json:"jobTier"`
		Priority int    `json:"priority"`
	} `json:"queueSettings"`
}

// JobInput is one input of a job.
type JobInput struct {
	Type  string  `json:"jobInputType"` // literal, uri_file, uri_folder, mltable, custom_model, mlflow_model, triton_model
	Mode  string  `json:"mode"`         // ReadOnlyMount, ReadWriteMount, Download, Direct, EvalMount, EvalDownload
	URI   string  `json:"uri"`
	Value *Scalar `json:"value"`
}

// Literal reports whether the input is a value rather than data.
func (i JobInput) Literal() bool { return i.Type == "" || strings.EqualFold(i.Type, "literal") }

// JobOutput is one output of a job.
type JobOutput struct {
	Type         string `json:"jobOutputType"`
	Mode         string `json:"mode"` // ReadWriteMount, Upload, Direct
	URI          string `json:"uri"`
	AssetName    string `json:"assetName"`
	AssetVersion string `json:"assetVersion"`
}

// Place returns the URI of the output called name of a job, if the client did not set one. The
// output artifacts is the folder of the run's artifacts; a path alone, as in /report, is one in the
// default datastore.
func (o JobOutput) Place(job, name string) string {
	if o.URI == "" && strings.EqualFold(name, "artifacts") && !strings.EqualFold(o.Type, "uri_file") {
		return "azureml://datastores/workspaceartifactstore/paths/" + ArtifactPath(job) + "/"
	}
	if strings.HasPrefix(o.URI, "/") {
		o.URI = "azureml://datastores/workspaceblobstore/paths" + o.URI
	}
	if o.URI == "" {
		place := "azureml://datastores/workspaceblobstore/paths/azureml/" + job + "/" + name
		if strings.EqualFold(o.Type, "uri_file") {
			return place
		}
		return place + "/"
	}
	return strings.NewReplacer("${{name}}", job, "${{output_name}}", name, "${{default_datastore}}", "workspaceblobstore").Replace(o.URI)
}

// ArtifactPath is where the artifacts of a job are, in the datastore of artifacts.
func ArtifactPath(job string) string { return "ExperimentRun/dcid." + job }

// JobResources is what a job requests from its target.
type JobResources struct {
	InstanceCount int             `json:"instanceCount"`
	InstanceType  string          `json:"instanceType"`
	ShmSize       string          `json:"shmSize"`
	DockerArgs    json.RawMessage `json:"dockerArgs"` // a string, or a list of strings
	// DockerArgsList is where azure-ai-ml writes a list of them.
	DockerArgsList json.RawMessage `json:"dockerArgsList"`
	Properties     json.RawMessage `json:"properties"`
}

// local says that a file had compute: local, which clients of Azure send in this way.
func (r JobResources) local() bool {
	var p map[string]json.RawMessage
	return json.Unmarshal(r.Properties, &p) == nil && p["IsLocal"] != nil
}

// Compute is the name of the compute that a job names; empty where it names none.
func (j CommandJob) Compute() (string, error) {
	if j.ComputeID == "" {
		if j.Resources.local() {
			return LocalCompute, nil
		}
		return "", nil
	}
	ref, err := ParseRef(j.ComputeID, "computes")
	if err != nil {
		return "", Errorf(Invalid, "properties.computeId: %w", err)
	}
	return ref.Name, nil
}

// ContainerArgs are the options of the job's container: a string, a list of strings, or nothing.
func (r JobResources) ContainerArgs() json.RawMessage {
	if len(r.DockerArgsList) > 0 && string(r.DockerArgsList) != "null" {
		return r.DockerArgsList
	}
	return r.DockerArgs
}

// Distribution says how a job's processes find each other.
type Distribution struct {
	Type                    string `json:"distributionType"` // PyTorch, Mpi, TensorFlow
	ProcessCountPerInstance int    `json:"processCountPerInstance"`
	ParameterServerCount    int    `json:"parameterServerCount"`
	WorkerCount             int    `json:"workerCount"`
}

// Scalar is a value of a "map of strings" as clients really send them: strings, numbers, booleans
// and nulls. Its text is Python's, so that a job sees True and 1.5 as it would in Azure.
type Scalar string

// UnmarshalJSON takes any JSON scalar.
func (s *Scalar) UnmarshalJSON(b []byte) error {
	switch t := strings.TrimSpace(string(b)); {
	case t == "true":
		*s = "True"
	case t == "false":
		*s = "False"
	case t == "null":
		*s = ""
	case t != "" && t[0] == '"':
		var v string
		if err := json.Unmarshal(b, &v); err != nil {
			return err
		}
		*s = Scalar(v)
	case t != "" && (t[0] == '{' || t[0] == '['):
		return Errorf(Invalid, "%.40s is not a scalar; use a string, a number or a boolean", t)
	default:
		*s = Scalar(t)
	}
	return nil
}

// Waterfall shows where a job's start-up time went. Zero means that the phase has not begun.
type Waterfall struct {
	Submitted   time.Time `json:"submitted,omitzero"`
	Placed      time.Time `json:"placed,omitzero"`
	Staging     time.Time `json:"staging,omitzero"`
	Environment time.Time `json:"environment,omitzero"`
	Started     time.Time `json:"started,omitzero"`
	FirstOutput time.Time `json:"firstOutput,omitzero"`
	Uploading   time.Time `json:"uploading,omitzero"`
	Ended       time.Time `json:"ended,omitzero"`
}

// Shift moves all times by d.
func (w *Waterfall) Shift(d time.Duration) {
	Shift(d, &w.Submitted, &w.Placed, &w.Staging, &w.Environment, &w.Started, &w.FirstOutput, &w.Uploading, &w.Ended)
}

// JobState is the server's own state of a job, stored next to the client's document.
type JobState struct {
	Compute string `json:"compute,omitempty"` // name of the target it was sent to
	Attempt int    `json:"attempt,omitempty"` // which attempt this is, when it is not the first
	Reason  string `json:"reason,omitempty"`  // why it is in its status: one true sentence
	Cancel  bool   `json:"cancel,omitempty"`  // somebody asked it to end
	// Admin says that an administrator submitted it: it may use files of the server, and options
	// for containers.
	Admin bool `json:"admin,omitempty"`
	// Depth is how many jobs with children it is inside of, and Left how many commands more it may
	// begin: as many as it had when it was checked. Nil is a job of an earlier release.
	Depth int  `json:"depth,omitempty"`
	Left  *int `json:"left,omitempty"`
	// StopCause and StopWhy are for Exit.Cause and the reason where it was not a user who asked it
	// to end.
	StopCause string `json:"stopCause,omitempty"`
	StopWhy   string `json:"stopWhy,omitempty"`
	// Reserved is what the job reserves of the budgets it is charged to until it has ended, in
	// ReservedIn.
	Reserved   float64   `json:"reserved,omitempty"`
	ReservedIn string    `json:"reservedIn,omitempty"`
	Exit       *Exit     `json:"exit,omitempty"`
	Times      Waterfall `json:"times,omitzero"`
	Usage      Usage     `json:"usage,omitzero"` // peaks
	// Services is the state of the services that its first task runs, by name.
	Services map[string]ServiceState `json:"services,omitempty"`
	// Parent is the pipeline job this job is a step of, and Node its name there.
	Parent string `json:"parent,omitempty"`
	Node   string `json:"node,omitempty"`
	// Serves is the online deployment this job is a replica of, ENDPOINT/DEPLOYMENT.
	Serves string `json:"serves,omitempty"`
	// Work is how far a job with mini-batches has come.
	Work *Work `json:"work,omitempty"`
	// Invokes is the batch deployment that this job runs, ENDPOINT/DEPLOYMENT.
	Invokes string `json:"invokes,omitempty"`
	// Asked is a digest of the invocation: a request that is sent again has the same.
	Asked string `json:"asked,omitempty"`
	// Steps are those of a pipeline job, in the order of their names.
	Steps []PipelineStep `json:"steps,omitempty"`
}

// WritesInput says whether an input in this mode may be written to where it lies.
func WritesInput(mode string) bool {
	return strings.EqualFold(mode, "ReadWriteMount") || strings.EqualFold(mode, "rw_mount")
}

// EvaluatesInput says whether an input in this mode is what its MLTable file says.
func EvaluatesInput(mode string) bool {
	for _, m := range []string{"EvalMount", "eval_mount", "EvalDownload", "eval_download"} {
		if strings.EqualFold(mode, m) {
			return true
		}
	}
	return false
}

// OwnsInput says whether a task gets an input in this mode as a copy of its own, to which it may
// write.
func OwnsInput(mode string) bool {
	for _, m := range []string{"Download", "EvalDownload", "eval_download"} {
		if strings.EqualFold(mode, m) {
			return true
		}
	}
	return WritesInput(mode)
}

// EnvironmentProperty is the property of a job that runs on the node as it is, whatever its
// environment says, if its value is OnHost.
const (
	EnvironmentProperty = "berth.environment"
	OnHost              = "host"
)

// StreamProperty is the property of a job that names inputs, separated by commas, which are not
// brought to the node but fetched while the command reads them.
const StreamProperty = "berth.stream"

// StreamedInputs are those that the property names; modes has the mode of each input that is data.
func StreamedInputs(property string, modes map[string]string) (map[string]bool, error) {
	out := map[string]bool{}
	for name := range strings.SplitSeq(property, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		mode, ok := modes[name]
		if !ok {
			return nil, Errorf(Invalid, "properties.%s names %q, which is not an input of data of the job", StreamProperty, name)
		}
		switch strings.ToLower(mode) {
		case "", "readonlymount", "ro_mount":
			out[name] = true
		default:
			return nil, Errorf(Invalid, "properties.%s names input %s, whose mode is %s: only inputs that are mounted read-only (ro_mount) can be streamed", StreamProperty, name, mode)
		}
	}
	return out, nil
}
