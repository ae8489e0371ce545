package scale_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth/internal/scale"
)

const limit = 2 * time.Minute

// idle nodes, named by the seconds they have been so: "i90".
func idle(seconds ...int) []scale.Node {
	var out []scale.Node
	for _, s := range seconds {
		out = append(out, scale.Node{Name: fmt.Sprint("i", s), Since: noon.Add(-time.Duration(s) * time.Second)})
	}
	return out
}

func some(what scale.Node, n int) []scale.Node {
	var out []scale.Node
	for i := range n {
		what.Name = fmt.Sprint(string("sb"[min(what.Busy, 1)]), i)
		out = append(out, what)
	}
	return out
}

func busy(n int) []scale.Node     { return some(scale.Node{Busy: 1}, n) }
func starting(n int) []scale.Node { return some(scale.Node{Starting: true}, n) }

func TestScenarios(t *testing.T) {
	for _, tt := range []struct {
		name string
		pool scale.Pool
		want scale.Decision
	}{
		{
			"from zero for all that waits, at once",
			scale.Pool{Max: 4, Room: 9, Sizes: map[int]int{1: 3}},
			scale.Decision{Add: 3, Target: 3, Why: "3 jobs wait: 0 -> 3 nodes"},
		},
		{
			"up to the most",
			scale.Pool{Max: 4, Room: 9, Nodes: busy(2), Sizes: map[int]int{1: 20}},
			scale.Decision{Add: 2, Target: 4, Why: "20 jobs wait: 2 -> 4 nodes", Short: "gpus can have at most 4 nodes"},
		},
		{
			"room without end",
			scale.Pool{Max: 4, Room: math.MaxInt, Nodes: busy(1), Sizes: map[int]int{1: 1}},
			scale.Decision{Add: 1, Target: 2, Why: "1 job waits: 1 -> 2 nodes"},
		},
		{
			"what is on its way counts",
			scale.Pool{Max: 4, Room: 9, Nodes: starting(3), Sizes: map[int]int{1: 3}},
			scale.Decision{Target: 3},
		},
		{
			"free slots of busy nodes count",
			scale.Pool{Max: 4, Room: 9, Slots: 2, Nodes: busy(2), Sizes: map[int]int{1: 4}},
			scale.Decision{Add: 1, Target: 3, Why: "4 jobs wait: 2 -> 3 nodes"},
		},
		{
			"a gang has nodes of its own",
			scale.Pool{Max: 8, Room: 9, Slots: 4, Sizes: map[int]int{3: 1}},
			scale.Decision{Add: 3, Target: 3, Why: "1 job waits for 3 nodes at once: 0 -> 3 nodes"},
		},
		{
			"a quota bounds growth and is named",
			scale.Pool{Max: 8, Room: 2, Bound: "the quota of DSv2 is 8 vCPUs, of which 8 are in use", Sizes: map[int]int{1: 4, 2: 1}},
			scale.Decision{Add: 2, Target: 2, Why: "5 jobs of 6 tasks wait: 0 -> 2 nodes", Short: "the quota of DSv2 is 8 vCPUs, of which 8 are in use"},
		},
		{
			"no nodes for a gang that a quota keeps from running",
			scale.Pool{Max: 8, Room: 2, Bound: "the budget is used up", Sizes: map[int]int{4: 2}},
			scale.Decision{Short: "the budget is used up"},
		},
		{
			"the least is kept",
			scale.Pool{Min: 2, Max: 4, Room: 9},
			scale.Decision{Add: 2, Target: 2, Why: "gpus keeps at least 2 nodes: 0 -> 2 nodes"},
		},
		{
			"the one idle longest goes first, the next in time",
			scale.Pool{Max: 4, Idle: limit, Nodes: idle(30, 120, 90)},
			scale.Decision{Remove: []string{"i120"}, Target: 2, Why: "1 node idle for 2m0s, the cluster's limit: 3 -> 2 nodes", Wake: noon.Add(30 * time.Second)},
		},
		{
			"not below the least",
			scale.Pool{Min: 1, Max: 4, Idle: limit, Nodes: idle(500, 400)},
			scale.Decision{Remove: []string{"i500"}, Target: 1, Why: "1 node idle for 2m0s, the cluster's limit: 2 -> 1 node"},
		},
		{
			"an idle time of 0",
			scale.Pool{Max: 4, Nodes: append(idle(0), starting(1)...)},
			scale.Decision{Remove: []string{"i0", "s0"}, Why: "1 node idle, and the cluster keeps none idle, and nothing waits for 1 node that had not started yet: 2 -> 0 nodes"},
		},
		{
			"what starts for nobody is let come, for a while",
			scale.Pool{Max: 4, Idle: limit, Nodes: starting(2)},
			scale.Decision{Unneeded: []string{"s0", "s1"}, Target: 2, Wake: noon.Add(limit)},
		},
		{
			"what starts for nobody for long goes, the last asked for first",
			scale.Pool{Max: 4, Idle: limit, Sizes: map[int]int{1: 1}, Nodes: some(scale.Node{Starting: true, Since: noon.Add(-limit)}, 3)},
			scale.Decision{
				Remove: []string{"s1", "s2"}, Unneeded: []string{"s1", "s2"}, Target: 1, Why: "nothing has waited for 2 nodes, not started yet, for 2m0s: 3 -> 1 node",
			},
		},
		{
			"a clock that jumps a day takes nothing that is busy",
			scale.Pool{Max: 4, Idle: limit, Nodes: append(busy(2), idle(86400)...)},
			scale.Decision{Remove: []string{"i86400"}, Target: 2, Why: "1 node idle for 2m0s, the cluster's limit: 3 -> 2 nodes"},
		},
		{
			"a clock that was set back does not keep a node for ever",
			scale.Pool{Max: 4, Idle: limit, Nodes: idle(-86400)},
			scale.Decision{Remove: []string{"i-86400"}, Why: "1 node idle for an unknown time, the clock was set back: 1 -> 0 nodes"},
		},
		{
			"a node that was taken away counts for nothing",
			scale.Pool{Max: 1, Room: 1, Nodes: []scale.Node{{Name: "x", Busy: 1, Evicted: true}}, Sizes: map[int]int{1: 1}},
			scale.Decision{Add: 1, Target: 1, Why: "1 job waits: 0 -> 1 node"},
		},
		{
			"after failures of the provider",
			scale.Pool{Max: 4, Room: 9, Sizes: map[int]int{1: 1}, Wait: noon.Add(time.Minute)},
			scale.Decision{Short: "the last attempt to add a node failed, the next is at 12:01:00 UTC", Wake: noon.Add(time.Minute)},
		},
		{
			"a most that was lowered",
			scale.Pool{Max: 1, Idle: limit, Nodes: append(busy(1), append(idle(1), starting(1)...)...)},
			scale.Decision{Remove: []string{"s0", "i1"}, Target: 1, Why: "gpus can have at most 1 node: 3 -> 1 node"},
		},
		{
			"a cluster that is being deleted",
			scale.Pool{Min: 2, Max: 4, Room: 9, Idle: limit, Nodes: append(busy(1), append(idle(1), starting(1)...)...), Sizes: map[int]int{1: 5}, Hold: "gpus is being deleted"},
			scale.Decision{Remove: []string{"i1", "s0"}, Target: 1, Why: "gpus is being deleted: 3 -> 1 node", Short: "gpus is being deleted"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.pool.Name = "gpus"
			if d := cmp.Diff(tt.want, scale.Decide(tt.pool, noon)); d != "" {
				t.Error(d)
			}
		})
	}
}
