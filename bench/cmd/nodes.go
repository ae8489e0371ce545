package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// sampleEvery is how often a task older than ten minutes is looked at, which is also its node's
// sign of life.
const sampleEvery = 10 * time.Second

// nodes has a cluster with many nodes, each with a task whose runner reports a sample every ten
// seconds, and looks what that costs the server. The server is real; its nodes are answered for by
// this process.
func nodes(b *bench) error {
	const name = "many"
	n, span := b.size(1000, 100), time.Duration(b.size(60, 10))*time.Second
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := world.StartFarm(b.ctx, b.group, self, filepath.Join(b.dir, "nodes"), sampleEvery)
	if err != nil {
		return err
	}
	defer f.Stop()
	c, err := f.Dial(b.ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Put(f.WS+"/computes/"+name, world.Cluster(clusterSize, 0, n, time.Hour)); err != nil {
		return err
	}
	for k := range n {
		if err := c.Submit(f.WS, fmt.Sprintf("%s-%d", name, k), world.JobOn(name, "sleep infinity")); err != nil {
			return err
		}
		if k%50 == 49 || k == n-1 { // a machine cannot start a thousand programs at once
			if err := b.running(f, k+1); err != nil {
				return err
			}
		}
	}
	if err := b.rest(f, sampleEvery); err != nil { // until all are in step
		return err
	}
	used := func() time.Duration {
		if d, ok := f.Usage(); ok {
			return d
		}
		server, _ := f.Processes()
		return measure.CPUs(server).Since(nil)
	}
	_, samples := f.Counts()
	before, at := used(), time.Now()
	if err := b.rest(f, span); err != nil {
		return err
	}
	cpu, wall := used()-before, time.Since(at)
	_, after := f.Counts()
	server, _ := f.Processes()
	rss, pss, err := measure.Memory(server[0])
	if err != nil {
		return err
	}
	row := measure.Row{
		Name: "nodes.cpu", Unit: "% of a core", Value: 100 * cpu.Seconds() / wall.Seconds(), CPUPerOp: measure.Number(peer.Ms(cpu) / float64(after-samples)),
		Durable: "what changes a state is answered after its sync; samples are written within a second",
		Note: fmt.Sprintf("a server with %d nodes, each with a task that reports a sample every %v: %d samples in %.0f s, and what the loops look at by themselves; "+
			"the nodes' own part is answered for by another process and not counted", n, sampleEvery, after-samples, wall.Seconds()),
	}
	row.Judge(measure.Bound{Of: "value", Limit: 2})
	if err := b.write(row); err != nil {
		return err
	}
	return b.write(measure.Row{
		Name: "nodes.memory", Unit: "MB", Value: float64(rss) / 1e6, Note: fmt.Sprintf("RSS of that server; PSS %.3g MB", float64(pss)/1e6),
	})
}

// running waits until n tasks of a farm run.
func (b *bench) running(f *world.Farm, n int) error {
	for begin := time.Now(); ; {
		if k, _ := f.Counts(); k >= n {
			return nil
		} else if time.Since(begin) > 2*time.Minute {
			return fmt.Errorf("%d of %d tasks run", k, n)
		}
		if err := b.rest(f, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// rest waits while nothing goes wrong.
func (b *bench) rest(f *world.Farm, d time.Duration) error {
	select {
	case err := <-f.Failed:
		return err
	case <-b.ctx.Done():
		return b.ctx.Err()
	case <-time.After(d):
		return nil
	}
}
