// Package worker holds the program that a replica of an online deployment is: a scoring server in
// Python that needs no other packages.
package worker

import _ "embed"

// Model puts a model where scripts look for it. Workers of batch deployments begin with it too.
//
//go:embed model.py
var Model string

// serving answers requests, tensors those of the open inference protocol, front passes them to a
// server of the user's own, and processes starts, stops and wakes the workers.
var (
	//go:embed worker.py
	serving string
	//go:embed tensors.py
	tensors string
	//go:embed front.py
	front string
	//go:embed processes.py
	processes string
)

// Source returns the program.
func Source() string { return Model + serving + tensors + front + processes }

// SourceVariable is the variable that Source is given in, to a Python that runs Boot.
const (
	SourceVariable = "BERTH_WORKER"
	Boot           = `import os; berth_source = os.environ.pop("BERTH_WORKER"); exec(compile(berth_source, "berth_worker.py", "exec"))`
)
