package api

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/target"
)

// room is what a job can have on one node of a compute; 0 is not known, GPUs -1.
type room struct {
	what   string
	cpus   float64
	memory int64
	gpus   int
}

// checkNeeds refuses a job that needs more than a node of its compute has, or an input that it
// cannot be given.
func checkNeeds(c *call, tx *store.Tx, compute string, raw json.RawMessage) error {
	n, err := berth.NeedsOf(raw)
	if err != nil {
		return err
	}
	var v berth.CommandJob
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if n.Stdin != nil && (v.Distribution != nil || v.Resources.InstanceCount > 1) {
		return berth.Errorf(berth.Invalid, "a job of several processes has no standard input; run it without properties.%s (-i)", berth.StdinProperty)
	}
	if n.CPUs == 0 && n.Memory == 0 && n.GPUs <= 0 {
		return nil
	}
	r, err := jobCall{c}.room(tx, compute)
	if err != nil {
		return err
	}
	switch {
	case r.cpus > 0 && n.CPUs > r.cpus:
		return berth.Errorf(berth.Invalid, "the job needs %g CPUs, and %s has %g; ask for fewer, or choose another compute", n.CPUs, r.what, r.cpus)
	case r.memory > 0 && n.Memory > r.memory:
		return berth.Errorf(berth.Invalid, "the job needs %s of memory, and %s has %s; ask for less, or choose another compute", gib(n.Memory), r.what, gib(r.memory))
	case r.gpus >= 0 && n.GPUs > r.gpus:
		return berth.Errorf(berth.Invalid, "the job needs %s, and %s has %s; choose another compute (`berth compute list`), or attach a machine that has some: `berth compute attach --help`",
			countGPUs(n.GPUs), r.what, countGPUs(r.gpus))
	}
	return nil
}

func countGPUs(n int) string {
	switch n {
	case 0:
		return "none"
	case 1:
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

func gib(n int64) string { return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30)) }

// largest is what a job can have on one of several machines: of each thing, what the machine with
// most of it has. While one of them is yet to say what it has, that is not known.
func largest(compute string, all []berth.AttachedMachine) room {
	r := room{what: "the largest machine of compute " + compute, gpus: -1}
	for _, m := range all {
		if m.Memory == 0 {
			return room{gpus: -1}
		}
		r.cpus, r.memory, r.gpus = max(r.cpus, m.CPUs), max(r.memory, m.Memory), max(r.gpus, m.GPUs)
	}
	return r
}

// room is what a node of a compute has.
func (c jobCall) room(tx *store.Tx, name string) (room, error) {
	if berth.IsLocal(name) {
		m := c.s.Machine
		return room{"this server's machine", float64(m.CPUs), m.Memory, m.GPUs}, nil
	}
	none := room{gpus: -1}
	d, err := tx.Get(c.ws.Key(), "computes", name, "")
	if err != nil {
		return none, err
	}
	st, err := target.State(d)
	if err != nil {
		return none, err
	}
	var v struct {
		Properties berth.ComputeProps `json:"properties"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return none, err
	}
	if v.Properties.Attached() {
		a := st.Attached
		if a.Several() {
			return largest(d.Name, a.Machines), nil
		}
		if a.Unasked() || a.Queues || strings.EqualFold(v.Properties.ComputeType, "Kubernetes") {
			return none, nil // its own scheduler knows
		}
		return room{"compute " + d.Name, a.CPUs, a.Memory, a.GPUs}, nil
	}
	z, ok, err := c.snapshot(tx).size(v.Properties.Properties.VMSize)
	if err != nil || !ok {
		return none, err
	}
	return room{fmt.Sprintf("a node of compute %s (%s)", d.Name, z.Name), float64(z.VCPUs), z.Memory(), z.GPUs}, nil
}
