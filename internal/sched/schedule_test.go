package sched_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth/internal/sched"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// nodes of one slot each: "gpus-1" and so on, the first used of them in use.
func nodes(n, used int) []sched.Node {
	var out []sched.Node
	for i := range n {
		node := sched.Node{Name: "gpus-" + string(rune('1'+i)), Slots: 1, Ready: true}
		if i < used {
			node.Used = 1
		}
		out = append(out, node)
	}
	return out
}

func queue(gangs ...sched.Gang) *sched.Queue {
	q := &sched.Queue{}
	for i, g := range gangs {
		g.Seq = int64(i)
		q.Add(g)
	}
	return q
}

func TestScenarios(t *testing.T) {
	one := sched.Gang{ID: "a", Nodes: 1}
	for _, tt := range []struct {
		name    string
		pool    sched.Pool
		gangs   []sched.Gang
		running []sched.Running
		fresh   []string
		want    []sched.Choice
	}{
		{
			name:  "a free node is taken",
			pool:  sched.Pool{Max: 4, Nodes: nodes(4, 1)},
			gangs: []sched.Gang{one},
			want:  []sched.Choice{{Gang: "a", Nodes: []string{"gpus-2"}, Why: "placed on gpus-2: a slot was free"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.pool.Name == "" {
				tt.pool.Name = "gpus"
			}
			got := sched.Schedule(tt.pool, queue(tt.gangs...), tt.running, tt.fresh, noon)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
