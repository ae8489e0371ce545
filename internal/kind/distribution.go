package kind

import (
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
)

// mostNodes is how many nodes a job may have, and how many processes on each of them.
const mostNodes = 1000

// mostProcesses is how many processes a job may have in all: each needs a port to be reached at.
const mostProcesses = 10_000

// nodes is the part of a command job that says where and how often its command runs. What is absent
// is nil: its default is not 0.
type nodes struct {
	Resources struct {
		InstanceCount *int `json:"instanceCount"`
	} `json:"resources"`
	Distribution *struct {
		Type                    string `json:"distributionType"`
		ProcessCountPerInstance *int   `json:"processCountPerInstance"`
		ParameterServerCount    *int   `json:"parameterServerCount"`
		WorkerCount             *int   `json:"workerCount"`
	} `json:"distribution"`
	QueueSettings struct {
		JobTier  string `json:"jobTier"`
		Priority int    `json:"priority"`
	} `json:"queueSettings"`
}

// asked is how many nodes the job asks for.
func (n *nodes) asked() int {
	if c := n.Resources.InstanceCount; c != nil {
		return *c
	}
	return 1
}

// count is how many nodes the job gets. TensorFlow's processes are counted for the whole job, and a
// node that would have none is not taken.
func (n *nodes) count() int {
	d := n.Distribution
	if d == nil || !strings.EqualFold(d.Type, "tensorflow") || d.WorkerCount == nil {
		return n.asked()
	}
	all := *d.WorkerCount
	if d.ParameterServerCount != nil {
		all += *d.ParameterServerCount
	}
	return min(n.asked(), all)
}

// validateNodes checks the number of nodes, the processes on them and the place in the queue.
func validateNodes(props json.RawMessage) error {
	var n nodes
	if err := json.Unmarshal(props, &n); err != nil {
		return berth.Errorf(berth.Invalid, "properties: %s", jsonReason(err))
	}
	if c := n.asked(); c < 1 || c > mostNodes {
		return berth.Errorf(berth.Invalid, "properties.resources.instanceCount must be from 1 to %[2]d nodes, not %[1]d", c, mostNodes)
	}
	if _, _, err := n.queue(); err != nil {
		return err
	}
	d := n.Distribution
	if d == nil {
		return nil
	}
	within := func(field string, value *int, least int) error {
		if value == nil || *value >= least && *value <= mostNodes {
			return nil
		}
		return berth.Errorf(berth.Invalid, "properties.distribution.%[1]s must be from %[3]d to %[4]d, not %[2]d", field, *value, least, mostNodes)
	}
	switch strings.ToLower(d.Type) {
	case "pytorch", "mpi":
		if err := within("processCountPerInstance", d.ProcessCountPerInstance, 1); err != nil {
			return err
		}
		if p := d.ProcessCountPerInstance; p != nil && *p*n.asked() > mostProcesses {
			return berth.Errorf(berth.Invalid, "properties.distribution: %d processes on each of %d nodes exceed the limit of %d processes per job", *p, n.asked(), mostProcesses)
		}
		return nil
	case "tensorflow":
		if err := within("workerCount", d.WorkerCount, 1); err != nil {
			return err
		}
		return within("parameterServerCount", d.ParameterServerCount, 0)
	case "ray":
		return berth.Errorf(berth.Unsupported, "properties.distribution.distributionType Ray is not supported yet; use PyTorch, Mpi or TensorFlow")
	case "":
		return berth.Errorf(berth.Invalid, "properties.distribution.distributionType is required; use PyTorch, Mpi or TensorFlow")
	default:
		return berth.Errorf(berth.Invalid, "properties.distribution.distributionType must be PyTorch, Mpi or TensorFlow, not %q", d.Type)
	}
}

// tiers order the queue. A job that says nothing is in the middle, and so is its priority: 2 of
// Azure's 1, 2, 3.
var tiers = map[string]int{"spot": -2, "basic": -1, "standard": 0, "null": 0, "": 0, "premium": 1}

const (
	tierStep       = 1000
	mediumPriority = 2
)

// queue is the job's place in the queue: higher goes first, and 0 is that of a job without queue
// settings. No priority lifts a job above one of the next tier. Spot says that it may be stopped
// for other work.
func (n *nodes) queue() (priority int, spot bool, err error) {
	tier, ok := tiers[strings.ToLower(n.QueueSettings.JobTier)]
	if !ok {
		return 0, false, berth.Errorf(berth.Invalid, "properties.queueSettings.jobTier must be Spot, Basic, Standard or Premium, not %q", n.QueueSettings.JobTier)
	}
	if p := n.QueueSettings.Priority; p != 0 {
		priority = min(max(p, -tierStep/2), tierStep/2-1) - mediumPriority
	}
	return tier*tierStep + priority, strings.EqualFold(n.QueueSettings.JobTier, "spot"), nil
}
