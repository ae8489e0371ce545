package kind

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// parallel cuts an input into mini-batches, which tasks on one or several nodes take one by one.
// The tasks do not need each other: each is placed by itself, and what one leaves undone another
// does. Steps of type parallel and invocations of batch deployments are such jobs.
type parallel struct{}

// A Puller is a kind whose tasks take mini-batches out of the store until there are none.
type Puller interface {
	Kind
	// Pull is how the work is to be done.
	Pull(props json.RawMessage) (Parallel, error)
}

// Parallel is what a job says of its mini-batches.
type Parallel struct {
	Input       string        // the input that is cut
	Size        int           // files of a mini-batch
	Table       bool          // the input may be a table, whose mini-batches are rows
	Bytes       int64         // of the rows of a mini-batch of a table
	Keys        []string      // columns of a table: rows with the same values are one mini-batch
	Workers     int           // processes on each node; 0 is one for each core
	Retries     int           // how often a mini-batch that failed is tried again
	Timeout     time.Duration // of one call of run
	MostItems   int           // items that may fail; -1 is any number
	MostBatches int           // mini-batches that may; -1 is any number
	MostPercent float64       // of the mini-batches that may
	Level       string        // of the worker's log
	Script      string        // below the code; empty for an MLflow model
	Model       string        // the input that is the model
	Output      string        // the output that gets the rows, or the folder that the script writes to
	File        string        // in that output
	Summary     bool          // the script writes the results itself
	Args        string        // of the script
}

// Limits of what a job may ask for.
const (
	mostBatchSize  = 1_000_000
	mostTableBytes = 16 << 30
	mostWorkers    = 256
	mostRetries    = 1000
	mostBatchTime  = 259_200 * time.Second
	defaultFile    = "parallel_run_step.txt"
	defaultTimeout = 60 * time.Second
	defaultRetries = 2
)

// parallelProps is the form of the properties. What came with a step is in snake case below the
// first level.
type parallelProps struct {
	InputData string                     `json:"inputData"`
	Size      *berth.Scalar              `json:"miniBatchSize"`
	Keys      json.RawMessage            `json:"partitionKeys"`
	Workers   *berth.Scalar              `json:"maxConcurrencyPerInstance"`
	Items     *berth.Scalar              `json:"errorThreshold"`
	Batches   *berth.Scalar              `json:"miniBatchErrorThreshold"`
	Level     string                     `json:"loggingLevel"`
	Retry     map[string]*berth.Scalar   `json:"retrySettings"`
	Inputs    map[string]berth.JobInput  `json:"inputs"`
	Outputs   map[string]berth.JobOutput `json:"outputs"`
	Env       map[string]berth.Scalar    `json:"environmentVariables"`
	Task      struct {
		Type   string `json:"type"`
		Script string `json:"entry_script"`
		Args   string `json:"program_arguments"`
		Append string `json:"append_row_to"`
		Model  string `json:"model"`
		// Ours, of batch deployments:
		Output  string `json:"output"`
		File    string `json:"output_file_name"`
		Summary bool   `json:"summary_only"`
	} `json:"task"`
}

// Pull is [Puller.Pull].
func (parallel) Pull(props json.RawMessage) (p Parallel, err error) {
	var v parallelProps
	if err := json.Unmarshal(props, &v); err != nil {
		return p, berth.Errorf(berth.Invalid, "properties: %s", jsonReason(err))
	}
	p = Parallel{Size: 1, Retries: defaultRetries, Timeout: defaultTimeout, MostItems: -1, MostBatches: -1, MostPercent: 100, Level: orElse(v.Level, "INFO")}
	if p.Input, err = v.input(); err != nil {
		return p, err
	}
	if err := v.table(&p); err != nil {
		return p, err
	}
	for _, n := range []struct {
		field       string
		from        *berth.Scalar
		to          *int
		least, most int
	}{
		{"miniBatchSize", v.Size, &p.Size, 1, mostBatchSize},
		{"maxConcurrencyPerInstance", v.Workers, &p.Workers, 1, mostWorkers},
		{"errorThreshold", v.Items, &p.MostItems, -1, 1 << 31},
		{"miniBatchErrorThreshold", v.Batches, &p.MostBatches, -1, 1 << 31},
		{"retrySettings.max_retries", v.retry("max_retries", "maxRetries"), &p.Retries, 0, mostRetries},
	} {
		if n.from == nil || *n.from == "" {
			continue
		}
		x, err := strconv.Atoi(strings.TrimSpace(string(*n.from)))
		if err != nil || x < n.least || x > n.most {
			return p, berth.Errorf(berth.Invalid, "properties.%s must be a whole number from %d to %d, not %s", n.field, n.least, n.most, *n.from)
		}
		*n.to = x
	}
	if t := v.retry("timeout"); t != nil && *t != "" {
		if p.Timeout, err = berth.ParseDuration(fmt.Sprint(seconds(string(*t)))); err != nil || p.Timeout <= 0 || p.Timeout > mostBatchTime {
			return p, berth.Errorf(berth.Invalid, "properties.retrySettings.timeout must be a number of seconds up to %d, not %s", int(mostBatchTime.Seconds()), *t)
		}
	}
	return p, v.task(&p)
}

// table reads how a table is cut: by the values of columns, or by the bytes of its rows.
func (v *parallelProps) table(p *Parallel) error {
	p.Table = strings.EqualFold(v.Inputs[p.Input].Type, "mltable") && v.Task.Output == ""
	raw := v.Keys
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" { // clients send the list as a text
		raw = json.RawMessage(text)
	}
	if len(raw) > 0 && json.Unmarshal(raw, &p.Keys) != nil {
		return berth.Errorf(berth.Invalid, "properties.partitionKeys must be a list of names of columns, not %s", v.Keys)
	}
	if len(p.Keys) > 0 && !p.Table {
		return berth.Errorf(berth.Invalid, "properties.partitionKeys are columns of a table, and input %s is of type %s: use an input of type mltable, or mini_batch_size", p.Input, v.Inputs[p.Input].Type)
	}
	return v.tableSize(p)
}

// tableSize reads the bytes of a mini-batch of a table: a number, as clients write it, or one with
// a unit. A table that is a selection of files is cut by that number of files.
func (v *parallelProps) tableSize(p *Parallel) error {
	if v.Size == nil {
		return nil
	}
	size, scale := strings.ToLower(strings.TrimSpace(string(*v.Size))), 1.0
	for unit, bytes := range map[string]float64{"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30} {
		if number, ok := strings.CutSuffix(size, unit); ok {
			size, scale = strings.TrimSpace(number), bytes
		}
	}
	n, err := strconv.ParseFloat(size, 64)
	if n *= scale; err == nil && n == 0 && v.Task.Output == "" { // as clients send it where they were given none
		v.Size = nil
		return nil
	}
	if !p.Table {
		if scale > 1 {
			return berth.Errorf(berth.Invalid, "properties.miniBatchSize %s is bytes of a table, and input %s is of type %s: give a number of files", *v.Size, p.Input, v.Inputs[p.Input].Type)
		}
		return nil
	}
	if err != nil || !(n >= 1 && n <= mostTableBytes) {
		return berth.Errorf(berth.Invalid, "properties.miniBatchSize must be a number of files, or of bytes such as 100kb up to %d GiB, not %s", mostTableBytes>>30, *v.Size)
	}
	p.Size, p.Bytes, v.Size = int(min(n, mostBatchSize)), int64(n), nil
	return nil
}

func (v *parallelProps) retry(names ...string) *berth.Scalar {
	for _, n := range names {
		if v.Retry[n] != nil {
			return v.Retry[n]
		}
	}
	return nil
}

// input is the name of the input that is cut.
func (v *parallelProps) input() (string, error) {
	name := ""
	rest, err := berth.Expand(v.InputData, func(where, path string) (string, error) {
		if where == "inputs" {
			name = path
		}
		return "", nil
	})
	in, ok := v.Inputs[name]
	if err != nil || name == "" || strings.TrimSpace(rest) != "" || !ok {
		return "", berth.Errorf(berth.Invalid, "properties.inputData must name an input of the job, such as ${{inputs.data}}, not %q", v.InputData)
	}
	if in.Literal() {
		return "", berth.Errorf(berth.Invalid, "properties.inputData: input %s is a value; it must be a file or a folder", name)
	}
	return name, nil
}

// task reads what is to be done with each mini-batch.
func (v *parallelProps) task(p *Parallel) error {
	t := &v.Task
	switch strings.ToLower(t.Type) {
	case "run_function", "function", "":
		if t.Script == "" {
			return berth.Errorf(berth.Invalid, "properties.task.entry_script is missing: name the file with init and run, below the code")
		}
	case "model":
		if _, ok := v.Inputs[t.Model]; !ok {
			return berth.Errorf(berth.Invalid, "properties.task.model must be the name of an input of the job")
		}
	default:
		return berth.Errorf(berth.Invalid, "properties.task.type %q is not run_function or model", t.Type)
	}
	if strings.HasPrefix(t.Script, "/") || slices.Contains(strings.Split(t.Script, "/"), "..") || strings.ContainsRune(t.Script, 0) {
		return berth.Errorf(berth.Invalid, "properties.task.entry_script must be the path of a file below the code, such as score.py")
	}
	p.Script, p.Args, p.Model = t.Script, t.Args, t.Model
	p.Output, p.File, p.Summary = t.Output, t.File, t.Summary
	if t.Append != "" {
		_, err := berth.Expand(t.Append, func(where, path string) (string, error) {
			if where == "outputs" {
				p.Output = path
			}
			return "", nil
		})
		if _, ok := v.Outputs[p.Output]; !ok || err != nil {
			return berth.Errorf(berth.Invalid, "properties.task.append_row_to must name an output of the job, such as ${{outputs.rows}}, not %q", t.Append)
		}
		p.File = defaultFile
	}
	if o, ok := v.Outputs[p.Output]; p.Output != "" && !ok {
		return berth.Errorf(berth.Invalid, "properties.task.output must be the name of an output of the job")
	} else if strings.EqualFold(o.Type, "uri_file") {
		p.File = "" // the output is the file
	}
	if strings.ContainsAny(p.File, "/\\\x00") || p.File == "." || p.File == ".." {
		return berth.Errorf(berth.Invalid, "properties.task.output_file_name must be the name of a file, not %q", p.File)
	}
	return p.arguments()
}

// arguments reads those of the script that are for us.
func (p *Parallel) arguments() error {
	words := strings.Fields(p.Args)
	for i := 0; i+1 < len(words); i++ {
		name, to := words[i], words[i+1]
		n, err := strconv.ParseFloat(to, 64)
		switch name {
		case "--error_threshold":
			p.MostItems = int(n)
		case "--allowed_failed_percent":
			p.MostPercent = n
		case "--allowed_failed_count":
			p.MostBatches = int(n)
		default:
			continue
		}
		if err != nil {
			return berth.Errorf(berth.Invalid, "properties.task.program_arguments: %s must be a number, not %s", name, to)
		}
	}
	return nil
}

// Exceeded says which limit of failures the work of a job has passed, if any.
func (p *Parallel) Exceeded(w *berth.Work) string {
	last := ""
	if w.LastError != "" {
		last = ": " + w.LastError
	}
	failed := w.Failed + w.Short
	switch {
	case p.MostItems >= 0 && w.FailedItems > p.MostItems:
		return fmt.Sprintf("%s failed, and error_threshold allows %d%s", have(w.FailedItems, "item"), p.MostItems, last)
	case p.MostBatches >= 0 && failed > p.MostBatches:
		return fmt.Sprintf("%s failed, and mini_batch_error_threshold allows %d%s", have(failed, "mini-batch"), p.MostBatches, last)
	case p.MostPercent < 100 && float64(failed)*100 > p.MostPercent*float64(w.Batches):
		return fmt.Sprintf("%d of %d mini-batches have failed, and %g percent may%s", failed, w.Batches, p.MostPercent, last)
	case w.Ended() && w.Failed == w.Batches:
		return all(w.Batches, "failed", "failed") + last
	}
	return ""
}

func (k parallel) Validate(props json.RawMessage) error {
	if _, err := k.Pull(props); err != nil {
		return err
	}
	return validateNodes(props)
}

// StepProps are the properties that a step, or its component, may give.
func (parallel) StepProps() []string {
	return []string{
		"codeId", "environmentId", "environmentVariables", "errorThreshold", "identity", "inputData", "limits", "loggingLevel", "maxConcurrencyPerInstance",
		"miniBatchErrorThreshold", "miniBatchSize", "partitionKeys", "queueSettings", "resources", "retrySettings", "task",
	}
}

// settle writes what a step said in its own words as jobs have it.
func (parallel) settle(p map[string]any, id func(text, collection string) string) error {
	for _, name := range []string{"resources", "queueSettings", "limits"} {
		m, ok := p[name].(map[string]any)
		if !ok {
			continue
		}
		out := map[string]any{}
		for k, v := range m {
			out[camel(k)] = number(k, v)
		}
		p[name] = out
	}
	task, _ := p["task"].(map[string]any)
	for from, to := range map[string][2]string{"code": {"codeId", "codes"}, "environment": {"environmentId", "environments"}} {
		switch v := task[from].(type) {
		case nil:
		case string:
			if p[to[0]] == nil && v != "" {
				if at, ok := strings.CutPrefix(v, "azureml:/subscriptions/"); ok {
					v = "/subscriptions/" + at
				}
				p[to[0]] = id(v, to[1])
			}
		default:
			return berth.Errorf(berth.Unsupported, "task.%s is defined inline; register it and refer to it", from)
		}
	}
	return nil
}
