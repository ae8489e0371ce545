package kind_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
)

func puller(t *testing.T) kind.Puller {
	t.Helper()
	k, err := kind.Of("Parallel")
	if err != nil {
		t.Fatal(err)
	}
	return k.(kind.Puller)
}

// pullJob is a job with so many nodes.
func pullJob(nodes string, w *berth.Work) kind.Job {
	return kind.Job{Name: "j", Key: "k", Status: berth.Running, Work: w, Props: json.RawMessage(`{"resources": {"instanceCount": ` + nodes + `}}`)}
}

func ids(tasks []berth.Task) (out []berth.TaskID) {
	for _, t := range tasks {
		out = append(out, t.ID)
	}
	return out
}

// TestParallelStep: which tasks a job with mini-batches starts and stops, and when it ends.
func TestParallelStep(t *testing.T) {
	ended := &berth.Exit{}
	evicted, killed := &berth.Exit{Code: 143, Cause: "evicted"}, &berth.Exit{Code: 137, Signal: "SIGKILL"}
	task := func(id berth.TaskID, s berth.TaskState, e *berth.Exit) *berth.Task {
		return &berth.Task{ID: id, State: s, Exit: e}
	}
	half := &berth.Work{Batches: 4, Waiting: 2, Done: 2, Items: 4}
	all := &berth.Work{Batches: 4, Done: 4, Items: 4, Writer: "k.1"}
	for _, tt := range []struct {
		name   string
		nodes  string
		work   *berth.Work
		tasks  []*berth.Task
		cancel bool
		status berth.JobStatus
		start  []berth.TaskID
		stop   []berth.TaskID
		reason string
	}{
		{name: "at first one for each node", nodes: "3", status: berth.Queued, start: []berth.TaskID{"k.1", "k.2", "k.3"}},
		{
			name: "another for one that was evicted", nodes: "2", work: half, status: berth.Running, start: []berth.TaskID{"k.3"},
			tasks: []*berth.Task{task("k.1", berth.TaskDone, evicted), task("k.2", berth.TaskRunning, nil)},
		},
		{
			name: "none where nothing waits", nodes: "2", work: &berth.Work{Batches: 4, Running: 1, Done: 3}, status: berth.Running,
			tasks: []*berth.Task{task("k.1", berth.TaskDone, evicted), task("k.2", berth.TaskRunning, nil)},
		},
		{
			name: "one for the result", nodes: "2", work: &berth.Work{Batches: 4, Done: 4}, status: berth.Queued, start: []berth.TaskID{"k.3"},
			tasks: []*berth.Task{task("k.1", berth.TaskDone, ended), task("k.2", berth.TaskDone, ended)},
		},
		{
			name: "another for a writer that was evicted", nodes: "1", work: all, status: berth.Queued, start: []berth.TaskID{"k.2"},
			tasks: []*berth.Task{task("k.1", berth.TaskDone, evicted)},
		},
		{
			name: "written, others have not begun", nodes: "4", work: all, status: berth.Running, stop: []berth.TaskID{"k.4", "k.5"},
			tasks: []*berth.Task{
				task("k.1", berth.TaskDone, ended), task("k.2", berth.TaskEnding, nil), task("k.3", berth.TaskRunning, nil), task("k.4", berth.TaskStarting, nil),
				task("k.5", berth.TaskWaiting, nil),
			},
		},
		{
			name: "written, another keeps its files", nodes: "2", work: all, status: berth.Finalizing,
			tasks: []*berth.Task{task("k.1", berth.TaskDone, ended), task("k.2", berth.TaskEnding, nil)},
		},
		{
			name: "complete", nodes: "2", work: all, status: berth.Completed, reason: "4 mini-batches with 4 items were worked on",
			tasks: []*berth.Task{task("k.1", berth.TaskDone, ended), task("k.2", berth.TaskDone, evicted)},
		},
		{
			name: "files of a result that is written are lost", nodes: "2", work: &berth.Work{Batches: 4, Waiting: 1, Done: 3}, status: berth.Queued, start: []berth.TaskID{"k.3"},
			tasks: []*berth.Task{task("k.1", berth.TaskDone, ended), task("k.2", berth.TaskDone, evicted)},
		},
		{
			name: "canceled", nodes: "2", work: half, cancel: true, status: berth.CancelRequested, stop: []berth.TaskID{"k.1", "k.2"},
			tasks: []*berth.Task{task("k.1", berth.TaskEnding, nil), task("k.2", berth.TaskRunning, nil)},
		},
		{
			name: "canceled while the last keeps its files", nodes: "2", work: all, cancel: true, status: berth.CancelRequested, stop: []berth.TaskID{"k.2"},
			tasks: []*berth.Task{task("k.1", berth.TaskDone, ended), task("k.2", berth.TaskEnding, nil)},
		},
		{
			name: "too much failed", nodes: "2", work: &berth.Work{Batches: 4, Failed: 2, Waiting: 2, Error: "2 failed"}, status: berth.Running, stop: []berth.TaskID{"k.2"}, reason: "2 failed",
			tasks: []*berth.Task{task("k.1", berth.TaskDone, killed), task("k.2", berth.TaskRunning, nil)},
		},
		{
			name: "too many nodes were lost", nodes: "1", work: &berth.Work{Batches: 4, Waiting: 4, Lost: 51}, status: berth.Failed, reason: "51 of its tasks were lost with their nodes",
			tasks: []*berth.Task{task("k.1", berth.TaskDone, &berth.Exit{Code: -1, Cause: "lost"})},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := pullJob(tt.nodes, tt.work)
			j.State.Cancel = tt.cancel
			s := puller(t).Step(j, tt.tasks)
			if s.Status != tt.status || !slices.Equal(ids(s.Start), tt.start) || !slices.Equal(s.Stop, tt.stop) || tt.reason != "" && s.State.Reason != tt.reason {
				t.Errorf("%s %q, start %v, stop %v", s.Status, s.State.Reason, ids(s.Start), s.Stop)
			}
		})
	}
}

// TestParallelExceeded: each limit is passed by one more than it allows.
func TestParallelExceeded(t *testing.T) {
	none := kind.Parallel{MostItems: -1, MostBatches: -1, MostPercent: 100}
	items, batches, percent := none, none, none
	items.MostItems, batches.MostBatches, percent.MostPercent = 2, 1, 25
	for _, tt := range []struct {
		name string
		how  kind.Parallel
		work berth.Work
		want string
	}{
		{"no limits", none, berth.Work{Batches: 4, Done: 1, Failed: 3, FailedItems: 30, Short: 1}, ""},
		{"every mini-batch", none, berth.Work{Batches: 4, Failed: 4, LastError: "why"}, "all 4 mini-batches failed: why"},
		{"the only mini-batch", none, berth.Work{Batches: 1, Failed: 1, LastError: "why"}, "the only mini-batch failed: why"},
		{"one item", kind.Parallel{MostBatches: -1, MostPercent: 100}, berth.Work{Batches: 2, Done: 1, Failed: 1, FailedItems: 1}, "1 item has failed, and error_threshold allows 0"},
		{"every mini-batch so far", none, berth.Work{Batches: 4, Failed: 3, Waiting: 1}, ""},
		{"as many items as allowed", items, berth.Work{Batches: 9, Failed: 1, Waiting: 8, FailedItems: 2}, ""},
		{"more items", items, berth.Work{Batches: 9, Failed: 1, Waiting: 8, FailedItems: 3}, "3 items have failed, and error_threshold allows 2"},
		{"as many mini-batches as allowed", batches, berth.Work{Batches: 4, Failed: 1, Waiting: 3}, ""},
		{"more, with those that returned too little", batches, berth.Work{Batches: 4, Failed: 1, Short: 1, Done: 1, Waiting: 2}, "2 mini-batches have failed, and mini_batch_error_threshold allows 1"},
		{"a quarter", percent, berth.Work{Batches: 8, Failed: 2, Waiting: 6}, ""},
		{"more than a quarter", percent, berth.Work{Batches: 8, Failed: 3, Waiting: 5}, "3 of 8 mini-batches have failed, and 25 percent may"},
	} {
		if got := tt.how.Exceeded(&tt.work); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestParallelPull: what a job says of its mini-batches, and what is refused.
func TestParallelPull(t *testing.T) {
	const start = `{"inputData": "${{inputs.d}}", "inputs": {"d": {"jobInputType": "uri_folder", "uri": "azureml:d:1"}, "n": {"jobInputType": "literal", "value": "3"}}, "outputs": {"rows": {"jobOutputType": "uri_file"}, "all": {"jobOutputType": "uri_folder"}}`
	const task = `, "task": {"type": "run_function", "entry_script": "score.py"}`
	got, err := puller(t).Pull(json.RawMessage(start + task + `}`))
	if err != nil || got.Input != "d" || got.Size != 1 || got.Workers != 0 || got.Retries != 2 || got.Timeout != time.Minute || got.MostItems != -1 || got.MostBatches != -1 || got.MostPercent != 100 || got.Script != "score.py" {
		t.Errorf("the defaults: %+v, %v", got, err)
	}
	got, err = puller(t).Pull(json.RawMessage(start + `, "miniBatchSize": "5", "maxConcurrencyPerInstance": 3, "errorThreshold": 7, "miniBatchErrorThreshold": 2,
		"retrySettings": {"max_retries": 0, "timeout": 90}, "task": {"type": "function", "entry_script": "a/score.py", "append_row_to": "${{outputs.rows}}",
		"program_arguments": "--allowed_failed_percent 12.5 --x y"}}`))
	want := kind.Parallel{
		Input: "d", Size: 5, Workers: 3, Timeout: 90 * time.Second, MostItems: 7, MostBatches: 2, MostPercent: 12.5, Level: "INFO", Script: "a/score.py", Output: "rows",
		Args: "--allowed_failed_percent 12.5 --x y",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	table := strings.Replace(start, "uri_folder", "mltable", 1)
	for props, want := range map[string]kind.Parallel{
		`, "miniBatchSize": "10kb"}`:                    {Size: 10 << 10, Bytes: 10 << 10},
		`, "miniBatchSize": "0.5 MB"}`:                  {Size: 1 << 19, Bytes: 1 << 19},
		`, "miniBatchSize": "20"}`:                      {Size: 20, Bytes: 20},
		`, "partitionKeys": ["a", "b c"]}`:              {Size: 1, Keys: []string{"a", "b c"}},
		`, "partitionKeys": ["k"], "miniBatchSize": 0}`: {Size: 1, Keys: []string{"k"}},
		`, "partitionKeys": "[\"a\"]"}`:                 {Size: 1, Keys: []string{"a"}},
		`, "partitionKeys": [], "miniBatchSize": "7"}`:  {Size: 7, Bytes: 7, Keys: []string{}},
	} {
		got, err := puller(t).Pull(json.RawMessage(table + task + props))
		if err != nil || !got.Table || got.Size != want.Size || got.Bytes != want.Bytes || !slices.Equal(got.Keys, want.Keys) {
			t.Errorf("%s: %+v, %v", props, got, err)
		}
	}
	for props, why := range map[string]string{
		`{}`: "properties.inputData must name an input",
		strings.Replace(start, "inputs.d", "inputs.n", 1) + task + `}`: "input n is a value",
		start + `}`:                                                                                       "entry_script is missing",
		start + task + `, "miniBatchSize": -1}`:                                                           "miniBatchSize must be a whole number from 1",
		start + task + `, "miniBatchSize": "10kb"}`:                                                       "input d is of type uri_folder: give a number of files",
		table + task + `, "miniBatchSize": "xkb"}`:                                                        "number of files, or of bytes such as 100kb",
		table + task + `, "miniBatchSize": "99999gb"}`:                                                    "number of files, or of bytes such as 100kb",
		table + task + `, "partitionKeys": "a"}`:                                                          "must be a list of names of columns",
		start + task + `, "partitionKeys": ["a"]}`:                                                        "use an input of type mltable",
		start + task + `, "retrySettings": {"timeout": 0}}`:                                               "timeout must be a number of seconds",
		start + `, "task": {"type": "run_function", "entry_script": "../s.py"}}`:                          "entry_script must be the path of a file below the code",
		start + `, "task": {"type": "model", "model": "m"}}`:                                              "task.model must be the name of an input",
		start + `, "task": {"type": "other"}}`:                                                            `"other" is not run_function or model`,
		start + `, "task": {"entry_script": "s.py", "append_row_to": "x"}}`:                               "append_row_to must name an output",
		start + `, "task": {"entry_script": "s.py", "output": "gone"}}`:                                   "task.output must be the name of an output",
		start + `, "task": {"entry_script": "s.py", "output": "all", "output_file_name": "a/b"}}`:         "output_file_name must be the name of a file",
		start + `, "task": {"entry_script": "s.py", "program_arguments": "--allowed_failed_count many"}}`: "--allowed_failed_count must be a number",
	} {
		if _, err := puller(t).Pull(json.RawMessage(props)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", props, err, why)
		}
	}
}
