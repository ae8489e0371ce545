// Package batch turns invocations of batch endpoints into jobs: pure functions from the documents
// of a deployment and of an invocation to the document of a pipeline job. A deployment of a model
// becomes a pipeline with one step, which scores in mini-batches; a deployment of a pipeline
// component becomes a job of that component.
package batch

import (
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// The names that the parts of a job have, as in Azure.
const (
	Step   = "batchscoring"
	Output = "score"
)

// OutputsProperty is the property of a deployment that lists, separated by commas, the folders
// which a caller with a key of the endpoint may choose for outputs. It is ours.
const OutputsProperty = "berth.outputs"

// Defaults are the settings that a deployment of a model has where it says nothing, as Azure's.
func Defaults() map[string]any {
	return map[string]any{
		"miniBatchSize": 10, "maxConcurrencyPerInstance": 1, "outputAction": "AppendRow", "outputFileName": "predictions.csv", "errorThreshold": -1, "loggingLevel": "Info",
		"retrySettings": map[string]any{"maxRetries": 3, "timeout": "PT30S"}, "resources": map[string]any{"instanceCount": 1, "properties": map[string]any{}},
	}
}

// defaults is a deployment with these.
func defaults() (d Deployment, err error) {
	raw, err := json.Marshal(Defaults())
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	return d, err
}

// Run are the settings of a run. A deployment has them, and an invocation may say otherwise.
type Run struct {
	MiniBatchSize  json.RawMessage `json:"miniBatchSize,omitempty"`
	ErrorThreshold json.RawMessage `json:"errorThreshold,omitempty"`
	OutputFileName string          `json:"outputFileName,omitempty"`
	RetrySettings  struct {
		MaxRetries json.RawMessage `json:"maxRetries,omitempty"`
		Timeout    string          `json:"timeout,omitempty"`
	} `json:"retrySettings"`
}

// Deployment is the document of a deployment, as far as it matters here.
type Deployment struct {
	Run
	Model             json.RawMessage         `json:"model"`
	Compute           string                  `json:"compute"`
	EnvironmentID     string                  `json:"environmentId"`
	Env               map[string]berth.Scalar `json:"environmentVariables"`
	CodeConfiguration *struct {
		CodeID        string `json:"codeId"`
		ScoringScript string `json:"scoringScript"`
	} `json:"codeConfiguration"`
	MaxConcurrency json.RawMessage `json:"maxConcurrencyPerInstance"`
	OutputAction   string          `json:"outputAction"`
	LoggingLevel   string          `json:"loggingLevel"`
	Resources      struct {
		InstanceCount json.RawMessage `json:"instanceCount"`
	} `json:"resources"`
	Properties    map[string]berth.Scalar `json:"properties"`
	Configuration *struct {
		Type      string          `json:"deploymentConfigurationType"`
		Component json.RawMessage `json:"componentId"`
		Settings  map[string]any  `json:"settings"`
	} `json:"deploymentConfiguration"`
}

// Read reads the properties of a deployment, and refuses what could not run.
func Read(props json.RawMessage) (*Deployment, error) {
	d := new(Deployment)
	if err := json.Unmarshal(props, d); err != nil {
		return nil, berth.Errorf(berth.Invalid, "the deployment cannot be read: %w", err)
	}
	if c := d.CodeConfiguration; c != nil && c.CodeID != "" {
		if s := c.ScoringScript; s == "" || path.IsAbs(s) || strings.HasPrefix(path.Clean(s), "..") {
			return nil, berth.Errorf(berth.Invalid, "properties.codeConfiguration.scoringScript must be the path of a file below the code, such as score.py")
		}
	}
	switch strings.ToLower(d.OutputAction) {
	case "", "appendrow", "summaryonly":
	default:
		return nil, berth.Errorf(berth.Invalid, "properties.outputAction %q is not AppendRow or SummaryOnly", d.OutputAction)
	}
	if d.IsPipeline() {
		if id, err := Reference(d.Configuration.Component); err != nil || id == "" {
			return nil, berth.Errorf(berth.Invalid, "properties.deploymentConfiguration.componentId must be the id of a pipeline component")
		}
	}
	for _, at := range d.outputs() {
		if !strings.HasPrefix(at, "azureml://datastores/") || !strings.Contains(at, "/paths/") || unclean(at) {
			return nil, berth.Errorf(berth.Invalid, "properties.properties.%s must list folders such as azureml://datastores/NAME/paths/FOLDER/, not %q", OutputsProperty, at)
		}
	}
	return d, nil
}

// outputs are the folders that callers with a key may choose for outputs, each with a slash at its
// end.
func (d *Deployment) outputs() (out []string) {
	for at := range strings.SplitSeq(string(d.Properties[OutputsProperty]), ",") {
		if at = strings.TrimSpace(at); at != "" {
			out = append(out, strings.TrimSuffix(at, "/")+"/")
		}
	}
	return out
}

// unclean says whether an address has parts that lead elsewhere than its text says.
func unclean(uri string) bool {
	_, rest, _ := strings.Cut(uri, "://")
	for part := range strings.SplitSeq(rest, "/") {
		if part == "." || part == ".." || strings.ContainsAny(part, "\\%\x00") {
			return true
		}
	}
	return false
}

// Limit refuses an invocation that writes elsewhere than to the places that the server chooses for
// its job and to the folders that the deployment names. It is for callers who have no more than a
// key of the endpoint: their jobs run as its maker, who could write to many more places.
func (d *Deployment) Limit(in *Invocation) error {
	may := func(field, uri string) error {
		if uri == "" {
			return nil
		}
		for _, folder := range d.outputs() {
			if strings.HasPrefix(strings.TrimSuffix(uri, "/")+"/", folder) && !unclean(uri) {
				return nil
			}
		}
		return berth.Errorf(berth.Denied, "%s: with a key of the endpoint, outputs cannot be written to %s: leave the address out, call with a token of your own, or have the deployment list the folder in properties.%s",
			field, uri, OutputsProperty)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Outputs)) {
		if err := may("properties.outputData."+name, in.Outputs[name].URI); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Inputs)) {
		if mode := in.Inputs[name].Mode; !slices.ContainsFunc(readModes, func(m string) bool { return strings.EqualFold(m, mode) }) {
			return berth.Errorf(berth.Denied, "properties.inputData.%s: with a key of the endpoint, inputs can only be read, not used in mode %s", name, mode)
		}
	}
	return may("properties.outputDataset", in.OutputDataset.uri())
}

// readModes are the modes in which an input is only read.
var readModes = []string{"", "ReadOnlyMount", "Download", "EvalMount", "EvalDownload", "Direct"}

// IsPipeline says whether a pipeline component is deployed.
func (d *Deployment) IsPipeline() bool {
	return d.Configuration != nil && strings.EqualFold(d.Configuration.Type, "PipelineComponent")
}

// Code is the id of the code, empty where an MLflow model needs none.
func (d *Deployment) Code() string {
	if d.CodeConfiguration == nil {
		return ""
	}
	return d.CodeConfiguration.CodeID
}

// Reference is the id of an asset: a text, or an object with it.
func Reference(raw json.RawMessage) (string, error) {
	var text string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var ref struct {
		Type string `json:"referenceType"`
		ID   string `json:"assetId"`
	}
	if err := json.Unmarshal(raw, &ref); err != nil {
		return "", err
	}
	if ref.ID == "" {
		return "", berth.Errorf(berth.Unsupported, "references of type %s cannot be used here: register the files as an asset", ref.Type)
	}
	return ref.ID, nil
}

// Invocation is what somebody sends to an endpoint.
type Invocation struct {
	Run
	Name       string            `json:"name"`
	Inputs     map[string]Data   `json:"inputData"`
	Outputs    map[string]Data   `json:"outputData"`
	Dataset    string            `json:"dataset"`
	Properties map[string]string `json:"properties"`
	Compute    struct {
		InstanceCount json.RawMessage `json:"instanceCount"`
	} `json:"compute"`
	OutputDataset folder         `json:"outputDataset"`
	Tags          map[string]any `json:"tags"`
}

// folder is a place in a datastore.
type folder struct {
	DatastoreID string `json:"datastoreId"`
	Path        string `json:"path"`
}

// uri is its address, "" where it is none.
func (f folder) uri() string {
	if f.DatastoreID == "" {
		return ""
	}
	return "azureml://datastores/" + path.Base(f.DatastoreID) + "/paths/" + strings.Trim(f.Path, "/") + "/"
}

// Data is an input or output of an invocation.
type Data struct {
	InputType  string        `json:"jobInputType"`
	OutputType string        `json:"jobOutputType"`
	URI        string        `json:"uri"`
	Mode       string        `json:"mode"`
	Value      *berth.Scalar `json:"value"`
}

// types are the types of data as invocations and as jobs have them.
var types = map[string]string{
	"urifile": "uri_file", "urifolder": "uri_folder", "mltable": "mltable", "custommodel": "custom_model", "mlflowmodel": "mlflow_model",
	"tritonmodel": "triton_model", "literal": "literal",
}

func typeOf(word string) string {
	plain := strings.ToLower(strings.ReplaceAll(word, "_", ""))
	if t, ok := types[plain]; ok {
		return t
	}
	return word
}

// input is an input as a job has it.
func (d Data) input(name string) (map[string]any, error) {
	kind := typeOf(d.InputType)
	if kind == "literal" || kind == "" && d.URI == "" {
		if d.Value == nil {
			return nil, berth.Errorf(berth.Invalid, "properties.inputData.%s has neither a value nor a uri", name)
		}
		return map[string]any{"jobInputType": "literal", "value": string(*d.Value)}, nil
	}
	if d.URI == "" {
		return nil, berth.Errorf(berth.Invalid, "properties.inputData.%s has no uri", name)
	}
	out := map[string]any{"jobInputType": kind, "uri": d.URI}
	if kind == "" {
		out["jobInputType"] = "uri_folder"
	}
	if d.Mode != "" {
		out["mode"] = d.Mode
	}
	return out, nil
}

func (d Data) output() map[string]any {
	out := map[string]any{"jobOutputType": "uri_folder", "mode": "ReadWriteMount"}
	for k, v := range map[string]string{"jobOutputType": typeOf(d.OutputType), "uri": d.URI, "mode": d.Mode} {
		if v != "" {
			out[k] = v
		}
	}
	return out
}

// Model is what is known of the model of a deployment.
type Model struct {
	ID, Name, Version string
	Base              string // name of the file or folder that was registered
	MLflow            bool
	File              bool // it is one file
}

// Target is the deployment that is invoked.
type Target struct {
	Endpoint, Name string
	*Deployment
	Model       Model
	Environment string // its own, or the model's
}

// Job is the properties of the job that an invocation is.
func (t Target) Job(in *Invocation) (map[string]any, error) {
	inputs := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(in.Inputs)) {
		v, err := in.Inputs[name].input(name)
		if err != nil {
			return nil, err
		}
		inputs[name] = v
	}
	if in.Dataset != "" && len(inputs) == 0 {
		inputs["dataset"] = map[string]any{"jobInputType": "uri_folder", "uri": in.Dataset}
	}
	outputs := map[string]any{}
	for name, o := range in.Outputs {
		outputs[name] = o.output()
	}
	props := map[string]any{
		"jobType": "Pipeline", "displayName": t.Endpoint + "/" + t.Name, "experimentName": t.Endpoint, "isArchived": false, "inputs": inputs, "outputs": outputs,
	}
	if e := in.Properties["experimentName"]; e != "" {
		props["experimentName"] = e
	}
	tags := map[string]any{}
	maps.Copy(tags, in.Tags)
	tags["azureml.batchrun"], tags["azureml.deploymentname"], tags["azureml.endpointname"] = "true", t.Name, t.Endpoint
	props["tags"] = tags
	if t.IsPipeline() {
		return t.component(props, tags)
	}
	return t.scoring(in, props)
}

// component makes it a job of the pipeline component.
func (t Target) component(props, tags map[string]any) (map[string]any, error) {
	id, err := Reference(t.Configuration.Component)
	if err != nil {
		return nil, err
	}
	// With this, Azure's clients download the job's own outputs, and not the score of its step.
	tags["azureml.jobtype"] = "azureml.pipelinejob"
	settings := map[string]any{}
	maps.Copy(settings, t.Configuration.Settings)
	props["componentId"], props["settings"] = id, settings
	if c, ok := settings["default_compute"].(string); !ok && t.Compute != "" {
		settings["default_compute"] = t.Compute
	} else if ok {
		settings["default_compute"] = strings.TrimPrefix(c, "azureml:")
	}
	return props, nil
}

// pick is the first of some values that is said.
func pick(all ...json.RawMessage) any {
	for _, v := range all {
		if len(v) > 0 && string(v) != "null" {
			return v
		}
	}
	return nil
}

// scoring makes it a pipeline whose one step scores in mini-batches.
func (t Target) scoring(in *Invocation, props map[string]any) (map[string]any, error) {
	inputs, outputs := props["inputs"].(map[string]any), props["outputs"].(map[string]any)
	if len(inputs) != 1 {
		return nil, berth.Errorf(berth.Invalid, "properties.inputData has %d inputs; deployment %s of a model takes exactly one, a file or a folder", len(inputs), t.Name)
	}
	name := slices.Collect(maps.Keys(inputs))[0]
	data := inputs[name].(map[string]any)
	switch data["jobInputType"] {
	case "literal":
		return nil, berth.Errorf(berth.Invalid, "properties.inputData.%s is a value; deployment %s of a model takes a file or a folder", name, t.Name)
	case "mltable":
		data["mode"] = "EvalMount"
	}
	for other := range outputs {
		if len(outputs) > 1 {
			return nil, berth.Errorf(berth.Invalid, "properties.outputData has %d outputs; deployment %s of a model has one, %s", len(outputs), t.Name, Output)
		}
		if other != Output {
			outputs[Output] = outputs[other]
			delete(outputs, other)
		}
	}
	if outputs[Output] == nil {
		o := map[string]any{"jobOutputType": "uri_folder", "mode": "ReadWriteMount"}
		if uri := in.OutputDataset.uri(); uri != "" {
			o["uri"] = uri
		}
		outputs[Output] = o
	}
	env := map[string]any{}
	for k, v := range t.Env {
		env[k] = string(v)
	}
	stepInputs := map[string]any{"job_data": map[string]any{"job_input_type": "literal", "value": "${{parent.inputs." + name + "}}"}}
	def, err := defaults()
	if err != nil {
		return nil, err
	}
	file := cmp.Or(in.OutputFileName, t.OutputFileName, def.OutputFileName)
	task := map[string]any{"type": "run_function", "output": Output, "output_file_name": file, "summary_only": strings.EqualFold(t.OutputAction, "SummaryOnly")}
	if t.Model.ID != "" {
		kind := "custom_model"
		if t.Model.MLflow {
			kind = "mlflow_model"
		}
		stepInputs["model"] = map[string]any{"job_input_type": kind, "uri": t.Model.ID, "mode": "ReadOnlyMount"}
		env["BERTH_MODEL_NAME"], env["BERTH_MODEL_VERSION"], env["BERTH_MODEL_BASE"] = t.Model.Name, t.Model.Version, t.Model.Base
		if t.Model.File {
			env["BERTH_MODEL_FILE"] = "1"
		}
		task["model"] = "model"
	}
	step := map[string]any{
		"type": "parallel", "name": Step, "inputs": stepInputs, "outputs": map[string]any{Output: map[string]any{"type": "literal", "value": "${{parent.outputs." + Output + "}}"}},
		"input_data": "${{inputs.job_data}}", "environment_variables": env, "task": task,
	}
	if t.Code() != "" {
		task["entry_script"], step["codeId"] = path.Clean(t.CodeConfiguration.ScoringScript), t.Code()
	} else {
		task["type"] = "model"
	}
	for key, v := range map[string]any{
		"mini_batch_size":              pick(in.MiniBatchSize, t.MiniBatchSize, def.MiniBatchSize),
		"max_concurrency_per_instance": pick(t.MaxConcurrency, def.MaxConcurrency),
		"error_threshold":              pick(in.ErrorThreshold, t.ErrorThreshold, def.ErrorThreshold),
		"retry_settings":               retries(in.Run, t.Run, def.Run),
		"resources":                    map[string]any{"instance_count": pick(in.Compute.InstanceCount, t.Resources.InstanceCount, def.Resources.InstanceCount)},
	} {
		step[key] = v
	}
	for key, v := range map[string]string{"computeId": t.Compute, "environmentId": t.Environment, "logging_level": t.LoggingLevel} {
		if v != "" {
			step[key] = v
		}
	}
	props["jobs"] = map[string]any{Step: step}
	return props, nil
}

func retries(in, of, def Run) map[string]any {
	return map[string]any{
		"max_retries": pick(in.RetrySettings.MaxRetries, of.RetrySettings.MaxRetries, def.RetrySettings.MaxRetries),
		"timeout":     cmp.Or(in.RetrySettings.Timeout, of.RetrySettings.Timeout, def.RetrySettings.Timeout),
	}
}
