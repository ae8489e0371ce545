package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth/internal/sched"
)

const gib = 1 << 30

// TestMachineLaws lets nodes and local tasks come and go as they are let, for ever: an isolated
// node is alone, no GPU has two owners, a strict machine promises no more than it has, and a
// refusal says why.
func TestMachineLaws(t *testing.T) {
	isolated, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := sched.Machine{
			CPUs: oneOf(t, "cpus", 2, 8, 64), Memory: int64(oneOf(t, "memory", 4, 16, 64)) * gib,
			GPUs: rapid.IntRange(0, 4).Draw(t, "gpus"), Strict: rapid.Bool().Draw(t, "strict"),
			Most: oneOf(t, "most", 0, 0, 2, 5),
		}
		t.Repeat(map[string]func(*rapid.T){
			"node": func(t *rapid.T) {
				a := sched.Ask{
					Compute: oneOf(t, "compute", "a", "a", "b", "alone"), VCPUs: 1 + even(t, 10, "vcpus"),
					Memory: int64(1+even(t, 20, "memory")) * gib, GPUs: even(t, 6, "gpus"),
				}
				a.Isolated = a.Compute == "alone"
				gpus, ok, why := m.Admit(a)
				if ok == (why != "") {
					t.Fatalf("admitted: %v, %q", ok, why)
				}
				if ok != admissible(m, a) {
					t.Fatalf("%+v on %+v: %v, %q", a, m, ok, why)
				}
				if !ok {
					refused++
					return
				}
				if len(gpus) != min(a.GPUs, m.GPUs) || len(m.Warnings(a)) != excess(m, a) {
					t.Fatalf("%d of %d GPUs, warnings %q for %+v on %+v", len(gpus), m.GPUs, m.Warnings(a), a, m)
				}
				if a.Isolated {
					isolated++
				}
				m.Nodes = append(slices.Clip(m.Nodes), sched.Guest{Compute: a.Compute, Isolated: a.Isolated, GPUs: gpus, VCPUs: a.VCPUs, Memory: a.Memory})
			},
			"leave": func(t *rapid.T) {
				if n := len(m.Nodes); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "which")
					m.Nodes = slices.Concat(m.Nodes[:i], m.Nodes[i+1:])
				}
			},
			"task": func(*rapid.T) {
				if m.Local() == "" {
					m.LocalTasks++
				}
			},
			"task ends":   func(*rapid.T) { m.LocalTasks = max(0, m.LocalTasks-1) },
			"reserve":     func(*rapid.T) { m.Reserved = "alone" },
			"not reserve": func(*rapid.T) { m.Reserved = "" },
			"":            func(t *rapid.T) { sound(t, m) },
		})
	})
	if isolated == 0 || refused == 0 {
		t.Fatalf("%d isolated nodes, %d refusals", isolated, refused)
	}
}

// sound is what must be so of a machine at any time.
func sound(t *rapid.T, m sched.Machine) {
	owner := map[int]string{}
	cpus, memory := 0, int64(0)
	for _, n := range m.Nodes {
		if n.Isolated && (len(m.Nodes) > 1 || m.LocalTasks > 0 || m.Local() == "") {
			t.Fatalf("an isolated node is not alone: %+v, %q", m, m.Local())
		}
		for _, g := range n.GPUs {
			if owner[g] != "" || g < 0 || g >= m.GPUs {
				t.Fatalf("GPU %d: %+v", g, m)
			}
			owner[g] = n.Compute
		}
		cpus, memory = cpus+n.VCPUs, memory+n.Memory
	}
	if m.Strict && (cpus > m.CPUs || memory > m.Memory) {
		t.Fatalf("a strict machine promises too much: %+v", m)
	}
	alone := slices.ContainsFunc(m.Nodes, func(g sched.Guest) bool { return g.Isolated })
	if (m.Local() != "") != (alone || m.Reserved != "") {
		t.Fatalf("local tasks: %q, %+v", m.Local(), m)
	}
}

// excess is in how many ways a size is larger than the machine.
func excess(m sched.Machine, a sched.Ask) (n int) {
	for _, more := range []bool{a.VCPUs > m.CPUs, a.Memory > m.Memory, a.GPUs > m.GPUs} {
		if more {
			n++
		}
	}
	return n
}

// admissible is the law itself.
func admissible(m sched.Machine, a sched.Ask) bool {
	if m.Most > 0 && len(m.Nodes) >= m.Most {
		return false
	}
	gpus, cpus, memory := m.GPUs, m.CPUs, m.Memory
	for _, n := range m.Nodes {
		if n.Isolated {
			return false
		}
		gpus, cpus, memory = gpus-len(n.GPUs), cpus-n.VCPUs, memory-n.Memory
	}
	switch {
	case m.Reserved != "" && a.Compute != m.Reserved,
		a.Isolated && (len(m.Nodes) > 0 || m.LocalTasks > 0),
		m.Strict && (excess(m, a) > 0 || a.VCPUs > cpus || a.Memory > memory),
		a.GPUs > 0 && m.GPUs == 0,
		min(a.GPUs, m.GPUs) > gpus:
		return false
	}
	return true
}

// TestIsolatedGetsIn: an isolated node that waits gets the machine in the end, whatever others
// would like, because they are refused.
func TestIsolatedGetsIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := sched.Machine{CPUs: 4, Memory: 8 * gib, LocalTasks: rapid.IntRange(0, 5).Draw(t, "tasks"), Reserved: "alone"}
		for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
			m.Nodes = append(m.Nodes, sched.Guest{Compute: fmt.Sprint("c", i)})
		}
		for range 20 {
			if _, ok, _ := m.Admit(sched.Ask{Compute: "alone", Isolated: true}); ok {
				return
			}
			// All that is there ends sooner or later, and others try to come in.
			if len(m.Nodes) > 0 && rapid.Bool().Draw(t, "a node") {
				m.Nodes = m.Nodes[1:]
			} else if m.LocalTasks > 0 {
				m.LocalTasks--
			} else if len(m.Nodes) > 0 {
				m.Nodes = m.Nodes[1:]
			}
			if _, ok, _ := m.Admit(sched.Ask{Compute: "c0"}); ok {
				m.Nodes = append(m.Nodes, sched.Guest{Compute: "c0"})
			}
			if m.Local() == "" {
				m.LocalTasks++
			}
		}
		t.Fatalf("it waits still: %+v", m)
	})
}

func TestMachineScenarios(t *testing.T) {
	gpus := func(of string, idle bool, i ...int) sched.Guest { return sched.Guest{Compute: of, GPUs: i, Idle: idle} }
	for _, tt := range []struct {
		name    string
		machine sched.Machine
		ask     sched.Ask
		gpus    []int
		why     string
	}{
		{
			"the lowest indices that are free",
			sched.Machine{GPUs: 4, Nodes: []sched.Guest{gpus("a", false, 0, 2)}},
			sched.Ask{GPUs: 2},
			[]int{1, 3},
			"",
		},
		{
			"taken ones are waited for",
			sched.Machine{GPUs: 2, Nodes: []sched.Guest{gpus("a", true, 0), gpus("b", false, 1)}},
			sched.Ask{GPUs: 1},
			nil, "waiting for 1 GPU: 0 of 2 free, the others belong to 1 node of a (1 idle), 1 node of b",
		},
		{"more than there are", sched.Machine{GPUs: 1}, sched.Ask{GPUs: 4}, []int{0}, ""},
		{
			"strict",
			sched.Machine{GPUs: 1, Strict: true},
			sched.Ask{GPUs: 4},
			nil,
			"the size has 4 GPUs, this machine 1, and it is strict about that",
		},
		{
			"isolated, and others are there",
			sched.Machine{Nodes: []sched.Guest{gpus("a", false), gpus("a", true)}, LocalTasks: 1},
			sched.Ask{Isolated: true},
			nil,
			"an isolated node needs the machine to itself: waiting for 2 nodes of a (1 idle) and 1 local task to leave",
		},
		{
			"another is isolated",
			sched.Machine{Nodes: []sched.Guest{{Compute: "m", Isolated: true}}},
			sched.Ask{Compute: "m", Isolated: true},
			nil,
			"an isolated node of m has this machine to itself",
		},
		{"no GPUs at all", sched.Machine{CPUs: 4}, sched.Ask{GPUs: 1}, nil, "this machine has no GPUs, and a node of this size needs 1"},
		{"another waits to be", sched.Machine{Reserved: "m"}, sched.Ask{Compute: "a"}, nil, "an isolated node of m waits for this machine"},
		{
			"a strict machine that is full",
			sched.Machine{CPUs: 4, Memory: 8 * gib, Strict: true, Nodes: []sched.Guest{{Compute: "a", VCPUs: 3, Memory: gib}}},
			sched.Ask{VCPUs: 2, Memory: gib},
			nil, "waiting for 2 CPUs: 1 of 4 free, the others belong to 1 node of a",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gpus, ok, why := tt.machine.Admit(tt.ask)
			if ok != (tt.why == "") || why != tt.why {
				t.Errorf("%v, %q, want %q", ok, why, tt.why)
			}
			if d := cmp.Diff(tt.gpus, gpus); d != "" {
				t.Error(d)
			}
		})
	}
	m, a := sched.Machine{CPUs: 2, Memory: 8 * gib}, sched.Ask{VCPUs: 64, Memory: 128 * gib, GPUs: 8}
	want := "the size has 64 CPUs, this machine 2: nodes are slower than the size promises\n" +
		"the size has 128 GiB of memory, this machine 8 GiB: jobs that use more than that fail\n" +
		"the size has 8 GPUs, this machine none: it can have no nodes here, and jobs on it wait for ever"
	if got := strings.Join(m.Warnings(a), "\n"); got != want {
		t.Errorf("warnings:\n%s", got)
	}
}
