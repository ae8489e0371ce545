package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/internal/scale"
	"github.com/berthml/berth/internal/sched"
)

const kubePeer = "kube-scheduler and KWOK"

// place measures the scheduler and the autoscaler in memory: how fast many tasks find their nodes,
// and how long one decision takes beside many that wait.
func place(b *bench) error {
	tasks, nodes := b.size(50_000, 5000), b.size(5000, 500)
	waiting := b.size(10_000, 1000)
	var rates, cpus, took, spent []float64
	for range b.rounds {
		rate, cpu, err := placements(tasks, nodes)
		if err != nil {
			return err
		}
		rates, cpus = append(rates, rate), append(cpus, cpu)
		ms, cpu := decisions(waiting, b.size(500, 20))
		took, spent = append(took, ms...), append(spent, cpu)
	}
	row := measure.Row{
		Name: "place", Unit: "placements/s", Value: measure.Median(rates), Rounds: b.rounds, CPUPerOp: measure.Number(measure.Median(cpus)),
		Durable: "no: decided in memory, nothing is written", Note: fmt.Sprintf("%d tasks on %d simulated nodes, from the queue to their nodes", tasks, nodes),
	}
	row.Judge(measure.Bound{Of: "value", Least: true, Limit: 20_000})
	if err := b.write(row); err != nil {
		return err
	}
	if err := b.placeBeside(); err != nil {
		return err
	}
	row = measure.Row{
		Name: "place.decide", Unit: "ms", Value: measure.Quantile(took, 0.99), Rounds: b.rounds, CPUPerOp: measure.Number(measure.Median(spent)),
		Note: fmt.Sprintf("p99 of %d decisions with %d jobs waiting for 1000 nodes in use, with backfill and preemption: what to place, the demand, how many nodes; p50 %.3g ms",
			len(took), waiting, measure.Median(took)),
	}
	row.Judge(measure.Bound{Of: "value", Limit: 50})
	return b.write(row)
}

// placeBeside takes turns with kube-scheduler, in a shape that two cores carry: each of its
// placements is a request.
func (b *bench) placeBeside() error {
	tasks, nodes := b.size(5000, 300), b.size(1000, 100)
	k, absent := peer.StartKube(b.ctx, b.group, filepath.Join(b.dir, "kube"), nodes)
	if absent == nil {
		defer k.Stop()
	}
	var ours, kube tally
	for range min(b.rounds, 3) {
		rate, cpu, err := placements(tasks, nodes)
		if err != nil {
			return err
		}
		ours.add(peer.Result{PerSecond: rate, CPU: cpu}, cpu)
		if absent != nil {
			continue
		}
		r, own, err := k.Schedule(b.ctx, tasks)
		if err == nil {
			err = k.Clear(b.ctx)
		}
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		if absent = err; err == nil {
			kube.add(r, own)
		}
	}
	row := measure.Row{
		Name: "place", Unit: "placements/s", Value: measure.Median(ours.rate), CPUPerOp: measure.Number(measure.Median(ours.own)), Rounds: len(ours.rate),
		Durable: "the peer yes: each placement is written to etcd and synced; ours not: decided in memory, nothing is written",
		Note:    fmt.Sprintf("%d tasks on %d simulated nodes, on both sides", tasks, nodes),
	}
	if absent != nil {
		row.Absent(kubePeer, absent.Error())
		return b.write(row)
	}
	row.Against(kubePeer, k.Version, ours.rate, kube.rate, true)
	row.PeerCPUPerOp = measure.Number(measure.Median(kube.cpu))
	row.Note += fmt.Sprintf("; the peer's pods wait before its scheduler starts, and time goes from the first bound to the last; "+
		"its CPU is %.3g ms per pod, %.3g ms of it the scheduler's own", measure.Median(kube.cpu), measure.Median(kube.own))
	return b.write(row)
}

func pool(nodes int) sched.Pool {
	p := sched.Pool{Name: "cpus", Max: nodes}
	for i := range nodes {
		p.Nodes = append(p.Nodes, sched.Node{Name: fmt.Sprintf("cpus-%05d", i), Slots: 10, Ready: true})
	}
	return p
}

// placements puts tasks of ten users on empty nodes: placements per second, and milliseconds of CPU
// for each.
func placements(tasks, nodes int) (rate, cpu float64, err error) {
	p := pool(nodes)
	gangs := make([]sched.Gang, tasks)
	for i := range gangs {
		gangs[i] = sched.Gang{ID: fmt.Sprintf("job-%06d", i), Nodes: 1, User: fmt.Sprint("user-", i%10), Seq: int64(i)}
	}
	runtime.GC()
	before, begin := self(), time.Now()
	var q sched.Queue
	for _, g := range gangs {
		q.Add(g)
	}
	placed := 0
	for _, c := range sched.Schedule(p, &q, nil, nil, begin) {
		if len(c.Nodes) == 1 && q.Remove(c.Gang) {
			placed++
		}
	}
	wall, used := time.Since(begin), self()-before
	if placed != tasks || q.Len() > 0 {
		return 0, 0, fmt.Errorf("%d of %d tasks were placed", placed, tasks)
	}
	return float64(tasks) / wall.Seconds(), peer.Ms(used) / float64(tasks), nil
}

// decisions has a task end and a job come, n times, and decides each time: milliseconds of each,
// and of CPU on average.
func decisions(waiting, n int) (took []float64, cpu float64) {
	now := time.Now()
	p := pool(1000)
	p.Max, p.Preempt, p.Short = 1200, true, "the quota is used up"
	sp := scale.Pool{Name: p.Name, Max: p.Max, Slots: 10, Bound: p.Short}
	var q sched.Queue
	for i := range waiting {
		q.Add(sched.Gang{
			ID: fmt.Sprintf("job-%06d", i), Nodes: 1 + i%4, User: fmt.Sprint("user-", i%10), Priority: i % 3, Seq: int64(i), Limit: time.Duration(i%5) * time.Hour,
		})
	}
	var running []sched.Running
	for i := range p.Nodes {
		for k := range 10 {
			g := sched.Gang{ID: fmt.Sprintf("r-%d-%d", i, k), Nodes: 1, User: "user-1", Priority: 1, Spot: k%2 == 0, Limit: time.Duration(k) * time.Hour}
			running = append(running, sched.Running{Gang: g, On: []string{p.Nodes[i].Name}, Since: now.Add(-time.Minute)})
		}
		p.Nodes[i].Used = 10
		sp.Nodes = append(sp.Nodes, scale.Node{Name: p.Nodes[i].Name, Busy: 10})
	}
	runtime.GC()
	before := self()
	for i := range n {
		id := fmt.Sprint("new-", i)
		node := &p.Nodes[i%len(p.Nodes)]
		begin := time.Now()
		node.Used--
		q.Add(sched.Gang{ID: id, Nodes: 1 + i%4, User: "user-2", Priority: i % 3, Seq: int64(1_000_000 + i)})
		sched.Schedule(p, &q, running, []string{id}, now)
		sp.Sizes = q.Sizes()
		scale.Decide(sp, now)
		took = append(took, peer.Ms(time.Since(begin)))
		node.Used++
		q.Remove(id)
	}
	return took, peer.Ms(self()-before) / float64(n)
}

// self is the CPU this process has used.
func self() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
