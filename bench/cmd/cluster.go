package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// The clusters of the benchmark: one that is empty again after each job, one that keeps a node.
const (
	emptyCluster = "empty"
	warmCluster  = "warm"
	clusterSize  = "Standard_DS3_v2"
)

// cluster measures a job on a cluster: from the call to the first instruction of the command, where
// a node has to be made first, and where one waits.
func cluster(b *bench) error {
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "cluster"))
	if err != nil {
		return err
	}
	defer s.Stop()
	w, err := s.Watch(b.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	c, err := s.Dial(b.ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Put(s.WS+"/computes/"+emptyCluster, world.Cluster(clusterSize, 0, 1, 0)); err != nil {
		return err
	}
	if err := c.Put(s.WS+"/computes/"+warmCluster, world.Cluster(clusterSize, 1, 1, time.Hour)); err != nil {
		return err
	}
	if _, err := nodeEvent(w, warmCluster, string(berth.NodeIdle)); err != nil {
		return err
	}
	l := &lives{b: b, s: s, w: w, c: c}
	n := b.size(10, 3)
	cold := &way{name: "empty cluster", n: n, sample: l.cold}
	warm := &way{name: "idle node", n: n, sample: l.warm}
	exec := &way{n: n, many: func(n int) ([]float64, error) { return peer.Exec(b.ctx, b.stamp, b.pipe, n) }}
	disk := &way{n: n, many: func(n int) ([]float64, error) { return peer.Sync(b.dir, n) }}
	for _, way := range []*way{cold, warm} { // the first job prepares things
		if _, err := way.sample(); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	l.parts = [5][]float64{}
	for range b.rounds {
		for _, way := range []*way{cold, warm, exec, disk} {
			before, _ := s.Usage()
			if err := way.round(b); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			after, _ := s.Usage()
			way.cpu += after - before
		}
	}
	fork, sync := measure.Median(exec.rounds), measure.Median(disk.rounds)
	own := func(o *way) *float64 { // without the command itself
		if _, ok := s.Usage(); !ok {
			return nil
		}
		return measure.Number(peer.Ms(o.cpu)/float64(len(o.all)) - fork)
	}
	row := measure.Row{
		Name: "cluster.cold", Unit: "ms", Value: measure.Median(cold.all), Rounds: b.rounds, CPUPerOp: own(cold),
		Physical: fmt.Sprintf("%.2g ms (one fdatasync; three forks and execs: a node is two processes)", sync+3*fork),
		Durable:  "yes: the job, the node and the placement, each synced before the next step",
		Note: fmt.Sprintf("submit on an empty cluster to the first instruction on a new node, p50 of %d; p90 %.3g, p99 %.3g ms; %s; CPU is the node's whole life",
			len(cold.all), measure.Quantile(cold.all, 0.9), measure.Quantile(cold.all, 0.99), l),
	}
	row.Judge(measure.Bound{Of: "value", Limit: 250})
	if err := b.write(row); err != nil {
		return err
	}
	return b.write(measure.Row{
		Name: "cluster.warm", Unit: "ms", Value: measure.Median(warm.all), Rounds: b.rounds, CPUPerOp: own(warm),
		Physical: fmt.Sprintf("%.2g ms (one fdatasync, one fork and exec)", sync+fork), Durable: row.Durable,
		Note: fmt.Sprintf("the same where a node waits, p50 of %d; p90 %.3g, p99 %.3g ms", len(warm.all), measure.Quantile(warm.all, 0.9), measure.Quantile(warm.all, 0.99)),
	})
}

// lives runs jobs on both clusters and notes where their time went.
type lives struct {
	b     *bench
	s     *world.Server
	w     *world.Watch
	c     *world.Conn
	count int
	parts [5][]float64
}

var lifeParts = [5]string{"accepted and decided", "boot", "placed", "staged", "to the first instruction"}

// String is the median of each part.
func (l *lives) String() string {
	var out []string
	for i, p := range l.parts {
		out = append(out, fmt.Sprintf("%s %.3g", lifeParts[i], measure.Median(p)))
	}
	return strings.Join(out, ", ") + " ms"
}

func (l *lives) submit(compute string) (name string, at time.Time, err error) {
	l.count++
	name = fmt.Sprintf("%s-%d", compute, l.count)
	time.Sleep(time.Duration(2+rand.IntN(10)) * time.Millisecond)
	at = time.Now()
	return name, at, l.c.Submit(l.s.WS, name, world.JobOn(compute, l.b.stamp+" "+l.b.pipe.Path))
}

func (l *lives) warm() (float64, error) {
	_, t, err := l.submit(warmCluster)
	if err != nil {
		return 0, err
	}
	return l.b.first(l.w, t)
}

// cold runs a job on a cluster without nodes, and waits until it has none again.
func (l *lives) cold() (float64, error) {
	name, t, err := l.submit(emptyCluster)
	if err != nil {
		return 0, err
	}
	var asked, ready time.Time
	for ready.IsZero() {
		e, err := l.w.Next()
		if err != nil {
			return 0, err
		}
		if e.Compute != emptyCluster {
			continue
		}
		switch {
		case e.Type == berth.EventResize:
			asked, err = time.Parse(time.RFC3339Nano, e.Time)
		case e.Type == berth.EventNode && e.State == string(berth.NodeIdle):
			ready, err = time.Parse(time.RFC3339Nano, e.Time)
		}
		if err != nil {
			return 0, err
		}
	}
	ms, err := l.b.first(l.w, t)
	if err != nil {
		return 0, err
	}
	if _, err := nodeEvent(l.w, emptyCluster, "gone"); err != nil {
		return 0, err
	}
	w, err := l.c.Times(l.s.WS, name)
	if err != nil {
		return 0, err
	}
	first := t.Add(time.Duration(ms * float64(time.Millisecond)))
	for i, part := range [5]time.Duration{asked.Sub(t), ready.Sub(asked), w.Placed.Sub(ready), w.Staging.Sub(w.Placed), first.Sub(w.Staging)} {
		l.parts[i] = append(l.parts[i], peer.Ms(part))
	}
	return ms, nil
}

// nodeEvent waits until a node of a compute is in a state.
func nodeEvent(w *world.Watch, compute, state string) (world.Event, error) {
	for {
		e, err := w.Next()
		if err != nil {
			return e, err
		}
		if e.Type == berth.EventNode && e.Compute == compute {
			if e.State == string(berth.NodeUnusable) {
				return e, fmt.Errorf("a node of %s could not be made", compute)
			}
			if e.State == state {
				return e, nil
			}
		}
	}
}
