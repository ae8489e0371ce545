package parallel

import (
	_ "embed"
	"encoding/json"
	"strconv"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/serve/worker"
)

// pulling is what a task does, in Python that needs no other packages.
//
//go:embed worker.py
var pulling string

// tables cuts tables into mini-batches and reads their rows.
//
//go:embed table.py
var tables string

// source returns the program of a task.
func source() string { return worker.Model + tables + pulling }

// command starts the program, whose source is in the environment.
const command = `exec "$(command -v python || command -v python3)" -c 'import os; exec(compile(os.environ["BERTH_WORKER"], "berth_parallel.py", "exec"))'`

// stopGrace is how many seconds a worker that is asked to end gives to the calls that are under
// way.
const stopGrace = 10

// Launch makes a launch that of a task which takes mini-batches. base is the server's address.
func Launch(l *berth.Launch, how kind.Parallel, base string) error {
	settings := map[string]any{
		"url": base + Path(l.Task), "token": l.Tracking.Token, "task": strconv.Itoa(l.Attempt), "input": how.Input, "size": how.Size, "workers": how.Workers,
		"timeout": how.Timeout.Seconds(), "grace": stopGrace, "script": how.Script, "args": how.Args, "model": how.Model, "summary": how.Summary,
	}
	if in := l.Inputs[how.Input]; how.Table { // rows are cut as its MLTable file says, whatever the mode
		in.Mode = "EvalMount"
		l.Inputs[how.Input] = in
		settings["table"], settings["bytes"], settings["keys"] = true, how.Bytes, how.Keys
	}
	if how.Output != "" {
		settings["output"], settings["file"] = how.Output, how.File
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	l.Command, l.Checked = command, true
	l.Env["BERTH_WORKER"], l.Env["BERTH_PARALLEL"] = source(), string(text)
	return nil
}

// Path is where a task asks for work, below the server's address.
func Path(t berth.TaskID) string { return "/runner/v1/tasks/" + string(t) }

// RowsName is the name of the file of results among the artifacts of a job that has not completed:
// the rows of its mini-batches in the order in which they came.
const RowsName = "user_logs/rows.csv"
