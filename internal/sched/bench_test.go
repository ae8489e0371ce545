package sched_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berthml/berth/internal/scale"
	"github.com/berthml/berth/internal/sched"
)

// wide is a pool of n nodes with ten slots each.
func wide(n int) sched.Pool {
	p := sched.Pool{Name: "cpus", Max: n, Held: map[string]int{}}
	for i := range n {
		p.Nodes = append(p.Nodes, sched.Node{Name: fmt.Sprintf("cpus-%05d", i), Slots: 10, Ready: true})
	}
	return p
}

// crowd is n gangs of one task by ten users.
func crowd(n int) []sched.Gang {
	gangs := make([]sched.Gang, n)
	for i := range gangs {
		gangs[i] = sched.Gang{ID: fmt.Sprintf("job-%06d", i), Nodes: 1, User: fmt.Sprint("user-", i%10), Seq: int64(i)}
	}
	return gangs
}

// BenchmarkPlacement: 50,000 tasks come to 5,000 empty nodes; from the first Add to the last
// leaving the queue.
func BenchmarkPlacement(b *testing.B) {
	p, gangs := wide(5000), crowd(50_000)
	b.ReportAllocs()
	for b.Loop() {
		var q sched.Queue
		for _, g := range gangs {
			q.Add(g)
		}
		placed := 0
		for _, c := range sched.Schedule(p, &q, nil, nil, noon) {
			if len(c.Nodes) == 1 && q.Remove(c.Gang) {
				placed++
			}
		}
		if placed != len(gangs) || q.Len() != 0 {
			b.Fatalf("%d placed", placed)
		}
	}
	b.ReportMetric(float64(len(gangs))*float64(b.N)/b.Elapsed().Seconds(), "placements/s")
}

// BenchmarkDecision: 10,000 gangs wait for 1,000 nodes that are all in use. A gang ends and one
// comes; what to place, what the demand is and how many nodes there should be is decided again.
func BenchmarkDecision(b *testing.B) {
	b.Run("preempt", func(b *testing.B) { decide(b, true) })
	b.Run("backfill", func(b *testing.B) { decide(b, false) })
}

func decide(b *testing.B, preempt bool) {
	p := wide(1000)
	p.Max, p.Preempt, p.Short = 1200, preempt, "the quota is used up"
	sp := scale.Pool{Name: p.Name, Max: p.Max, Slots: 10, Bound: p.Short}
	var q sched.Queue
	for i, g := range crowd(10_000) {
		g.Priority, g.Nodes, g.Limit = i%3, 1+i%4, time.Duration(i%5)*time.Hour
		q.Add(g)
	}
	var running []sched.Running
	for i := range p.Nodes {
		for k := range 10 {
			g := sched.Gang{ID: fmt.Sprintf("r-%d-%d", i, k), Nodes: 1, User: "user-1", Priority: 1, Spot: k%2 == 0, Limit: time.Duration(k) * time.Hour}
			running = append(running, sched.Running{Gang: g, On: []string{p.Nodes[i].Name}, Since: noon.Add(-time.Minute)})
		}
		p.Nodes[i].Used = 10
		sp.Nodes = append(sp.Nodes, scale.Node{Name: p.Nodes[i].Name, Busy: 10})
	}
	var took []float64
	for n := 0; b.Loop(); n++ {
		id := fmt.Sprint("new-", n)
		begin := time.Now()
		node := n % len(p.Nodes)
		p.Nodes[node].Used--
		q.Add(sched.Gang{ID: id, Nodes: 1 + n%4, User: "user-2", Priority: n % 3, Seq: int64(1_000_000 + n)})
		sched.Schedule(p, &q, running, []string{id}, noon)
		sp.Sizes = q.Sizes()
		scale.Decide(sp, noon)
		took = append(took, time.Since(begin).Seconds()*1000)
		p.Nodes[node].Used++
		q.Remove(id)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)*99/100], "ms-p99")
}

// BenchmarkLocal is the hot path of short jobs: thousands wait for one node, two slots are free,
// two jobs are new.
func BenchmarkLocal(b *testing.B) {
	p := sched.Pool{Name: "local", Max: 1, Nodes: []sched.Node{{Name: "local", Slots: 4, Used: 2, Ready: true}}}
	var q sched.Queue
	gangs := crowd(10_000)
	for _, g := range gangs {
		g.User = "me"
		q.Add(g)
	}
	fresh := []string{gangs[9998].ID, gangs[9999].ID}
	b.ReportAllocs()
	for b.Loop() {
		for _, c := range sched.Schedule(p, &q, nil, fresh, noon) {
			if len(c.Nodes) > 0 {
				g, _ := q.Get(c.Gang)
				q.Remove(c.Gang)
				q.Add(g) // for the next round
			}
		}
	}
}
