package sched

import (
	"fmt"
	"slices"
	"strings"
)

// Machine is what nodes are made of: a computer that several nodes and local tasks share.
type Machine struct {
	CPUs   int
	Memory int64 // bytes
	GPUs   int   // their indices are 0 to GPUs-1
	// Strict refuses to promise more than there is: a size larger than the machine, or nodes that
	// are together.
	Strict bool
	// Most is how many nodes it can hold, however small: each has processes of its own. 0 is no
	// end.
	Most  int
	Nodes []Guest
	// LocalTasks is how many tasks run here without a node.
	LocalTasks int
	// Unlimited is why the CPU and memory of nodes are not limited to those of their size here;
	// empty when they are.
	Unlimited string
	// Reserved is a compute that waits for an isolated node here. Nothing else comes until it has
	// got it, or it would wait for ever.
	Reserved string
}

// Guest is a node on a machine, from the moment it is asked for to the moment it is gone.
type Guest struct {
	Compute  string
	Isolated bool  // nothing else may be on the machine while it lives
	GPUs     []int // indices it has for itself
	VCPUs    int
	Memory   int64
	Idle     bool // could be given back now
}

// Ask is a node that somebody would like to have.
type Ask struct {
	Compute  string
	VCPUs    int
	Memory   int64
	GPUs     int
	Isolated bool
}

// Admit says whether one more node may come, with which GPUs, or why not. A size that wants more
// GPUs than the machine has gets all of them, unless the machine is strict; where it has none there
// can be no such node. To admit several, add each to Nodes before asking for the next.
func (m Machine) Admit(a Ask) (gpus []int, ok bool, why string) {
	if why = m.alone(a); why != "" {
		return nil, false, why
	}
	if m.Most > 0 && len(m.Nodes) >= m.Most {
		return nil, false, fmt.Sprintf("this machine has %s, as many as it can hold", nodes(len(m.Nodes)))
	}
	if m.Strict {
		if why = m.over(a); why != "" {
			return nil, false, why
		}
	}
	if a.GPUs > 0 && m.GPUs == 0 {
		return nil, false, fmt.Sprintf("this machine has no GPUs, and a node of this size needs %d", a.GPUs)
	}
	want := min(a.GPUs, m.GPUs)
	taken := make([]bool, m.GPUs)
	for _, n := range m.Nodes {
		for _, i := range n.GPUs {
			if i >= 0 && i < m.GPUs {
				taken[i] = true
			}
		}
	}
	for i := 0; i < m.GPUs && len(gpus) < want; i++ {
		if !taken[i] {
			gpus = append(gpus, i)
		}
	}
	if len(gpus) < want {
		return nil, false, fmt.Sprintf("waiting for %s: %d of %d free, the others belong to %s", count(want, "GPU"), len(gpus), m.GPUs,
			m.guests(func(g Guest) bool { return len(g.GPUs) > 0 }))
	}
	return gpus, true, ""
}

// alone is why isolation, its own or another's, keeps a node out.
func (m Machine) alone(a Ask) string {
	if i := slices.IndexFunc(m.Nodes, func(g Guest) bool { return g.Isolated }); i >= 0 {
		return lives(m.Nodes[i].Compute)
	}
	if m.Reserved != "" && m.Reserved != a.Compute {
		return waits(m.Reserved)
	}
	if !a.Isolated || len(m.Nodes) == 0 && m.LocalTasks == 0 {
		return ""
	}
	var who []string
	if len(m.Nodes) > 0 {
		who = append(who, m.guests(func(Guest) bool { return true }))
	}
	if m.LocalTasks > 0 {
		who = append(who, count(m.LocalTasks, "local task"))
	}
	return "an isolated node needs the machine to itself: waiting for " + strings.Join(who, " and ") + " to leave"
}

func lives(compute string) string {
	return "an isolated node of " + compute + " has this machine to itself"
}

func waits(compute string) string {
	return "an isolated node of " + compute + " waits for this machine"
}

// Local is why tasks that need no node may not begin now; empty when they may.
func (m Machine) Local() (down string) {
	if i := slices.IndexFunc(m.Nodes, func(g Guest) bool { return g.Isolated }); i >= 0 {
		return lives(m.Nodes[i].Compute)
	}
	if m.Reserved != "" {
		return waits(m.Reserved)
	}
	return ""
}

// over is what a strict machine has too little of.
func (m Machine) over(a Ask) string {
	switch {
	case a.VCPUs > m.CPUs:
		return fmt.Sprintf("the size has %s, this machine %d, and it is strict about that", count(a.VCPUs, "CPU"), m.CPUs)
	case a.Memory > m.Memory:
		return fmt.Sprintf("the size has %s of memory, this machine %s, and it is strict about that", bytes(a.Memory), bytes(m.Memory))
	case a.GPUs > m.GPUs:
		return fmt.Sprintf("the size has %s, this machine %d, and it is strict about that", count(a.GPUs, "GPU"), m.GPUs)
	}
	cpus, memory := m.CPUs, m.Memory
	for _, n := range m.Nodes {
		cpus, memory = cpus-n.VCPUs, memory-n.Memory
	}
	all := func(Guest) bool { return true }
	switch {
	case a.VCPUs > cpus:
		return fmt.Sprintf("waiting for %s: %d of %d free, the others belong to %s", count(a.VCPUs, "CPU"), max(0, cpus), m.CPUs, m.guests(all))
	case a.Memory > memory:
		return fmt.Sprintf("waiting for %s of memory: %s of %s free, the rest belongs to %s", bytes(a.Memory), bytes(max(0, memory)), bytes(m.Memory), m.guests(all))
	}
	return ""
}

// Warnings says which promises of the size are not kept here, one sentence each. A strict machine
// refuses sizes larger than itself.
func (m Machine) Warnings(a Ask) []string {
	var w []string
	if m.Unlimited != "" {
		w = append(w, m.Unlimited)
	}
	if m.Strict {
		return w
	}
	if a.VCPUs > m.CPUs {
		w = append(w, fmt.Sprintf("the size has %s, this machine %d: nodes are slower than the size promises", count(a.VCPUs, "CPU"), m.CPUs))
	}
	if a.Memory > m.Memory {
		w = append(w, fmt.Sprintf("the size has %s of memory, this machine %s: jobs that use more than that fail", bytes(a.Memory), bytes(m.Memory)))
	}
	if a.GPUs > m.GPUs {
		has := fmt.Sprintf("%d: nodes have these", m.GPUs)
		if m.GPUs == 0 {
			has = "none: it can have no nodes here, and jobs on it wait for ever"
		}
		w = append(w, fmt.Sprintf("the size has %s, this machine %s", count(a.GPUs, "GPU"), has))
	}
	return w
}

// guests names the nodes that which picks: "2 nodes of gpus (1 idle), 1 node of small".
func (m Machine) guests(which func(Guest) bool) string {
	var names []string
	all, idle := map[string]int{}, map[string]int{}
	for _, g := range m.Nodes {
		if !which(g) {
			continue
		}
		if all[g.Compute]++; all[g.Compute] == 1 {
			names = append(names, g.Compute)
		}
		if g.Idle {
			idle[g.Compute]++
		}
	}
	slices.Sort(names)
	for i, n := range names {
		names[i] = nodes(all[n]) + " of " + n
		if idle[n] > 0 {
			names[i] += fmt.Sprintf(" (%d idle)", idle[n])
		}
	}
	return strings.Join(names, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// bytes is a size of memory for people.
func bytes(n int64) string { return fmt.Sprintf("%.3g GiB", float64(n)/(1<<30)) }
