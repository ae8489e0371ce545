package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// way is one way to start a process, measured in milliseconds to its first instruction: per round
// the median, and all samples.
type way struct {
	name   string
	n      int
	sample func() (float64, error)
	many   func(n int) ([]float64, error) // instead of sample
	err    error                          // why it could not be measured
	rounds []float64
	all    []float64
	cpu    time.Duration // of our own processes
}

func (w *way) round(b *bench) error {
	var v []float64
	if w.many != nil {
		var err error
		if v, err = w.many(w.n); err != nil {
			return err
		}
	}
	for w.many == nil && len(v) < w.n {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		ms, err := w.sample()
		if err != nil {
			return err
		}
		v = append(v, ms)
	}
	w.rounds, w.all = append(w.rounds, measure.Median(v)), append(w.all, v...)
	return nil
}

// start measures what a user waits for on an idle machine: from the call to the first instruction
// of the command.
func start(b *bench) error {
	// Peers that are built first take minutes, and a server closes connections that are idle for
	// three.
	srun, sbatch, queue := b.slurmWays()
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "start"))
	if err != nil {
		return err
	}
	defer s.Stop()
	w, err := s.Watch(b.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	n := b.size(30, 5)
	api := &way{name: "unix socket", n: n}
	https := &way{name: "HTTPS", n: n}
	cli := &way{name: "CLI", n: n, sample: func() (float64, error) {
		t := time.Now()
		if out, err := s.CLI(b.ctx, "run", "--no-wait", "--no-code", "--", b.stamp, b.pipe.Path).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("berth run: %w: %s", err, out)
		}
		return b.first(w, t)
	}}
	for i, way := range []*way{api, https} {
		c, err := s.Dial(b.ctx, i == 1)
		if err != nil {
			return err
		}
		defer c.Close()
		count, job := 0, world.Job(b.stamp+" "+b.pipe.Path)
		way.sample = func() (float64, error) {
			count++
			time.Sleep(time.Duration(2+rand.IntN(10)) * time.Millisecond)
			t := time.Now()
			if err := c.Submit(s.WS, fmt.Sprintf("start-%d-%d", i, count), job); err != nil {
				return 0, err
			}
			return b.first(w, t)
		}
	}
	exec := &way{n: n, many: func(n int) ([]float64, error) { return peer.Exec(b.ctx, b.stamp, b.pipe, n) }}
	disk := &way{n: n, many: func(n int) ([]float64, error) { return peer.Sync(b.dir, n) }}
	ours := []*way{api, https, cli}
	for _, way := range ours { // the first job of a server prepares things
		if _, err := way.sample(); err != nil {
			return err
		}
	}
	for range b.rounds {
		for _, way := range append(ours, exec, disk, srun, queue, sbatch) {
			if way.err != nil {
				continue
			}
			before := s.Own()
			if err := way.round(b); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			way.cpu += s.Own().Since(before)
		}
	}
	physical := measure.Median(exec.rounds) + measure.Median(disk.rounds)
	for _, o := range ours {
		if err := b.writeStart(o, physical, measure.Median(exec.rounds), srun, sbatch, queue); err != nil {
			return err
		}
	}
	return nil
}

// first waits for the first instruction of a job submitted at t, and then for its end, so that the
// next one finds an idle server.
func (b *bench) first(w *world.Watch, t time.Time) (float64, error) {
	first, err := b.pipe.Wait(2 * time.Minute)
	if err != nil {
		return 0, err
	}
	for {
		e, err := w.Next()
		if err != nil {
			return 0, err
		}
		if e.Done() {
			if e.Status != "Completed" {
				return 0, fmt.Errorf("job %s: %s", e.Job, e.Status)
			}
			return peer.Ms(first.Sub(t)), nil
		}
	}
}

func (b *bench) slurmWays() (srun, sbatch, queue *way) {
	slurm, err := b.slurmPeer()
	srun = &way{name: "srun", err: err, n: b.size(8, 2), sample: func() (float64, error) {
		time.Sleep(time.Duration(20+rand.IntN(100)) * time.Millisecond)
		return slurm.Run(b.ctx, b.stamp, b.pipe)
	}}
	sbatch = &way{name: "sbatch", err: err, n: b.size(5, 1), sample: func() (float64, error) {
		time.Sleep(time.Duration(300+rand.IntN(1000)) * time.Millisecond) // its scheduler has a beat: come at any phase
		return slurm.Batch(b.ctx, b.stamp, b.pipe)
	}}
	hq, err := b.queuePeer()
	queue = &way{name: "HyperQueue", err: err, n: b.size(30, 5), many: func(n int) ([]float64, error) {
		return hq.Latency(n, b.stamp, b.pipe.Path)
	}}
	return srun, sbatch, queue
}

func (b *bench) writeStart(o *way, physical, exec float64, srun, sbatch, queue *way) error {
	name, limit := "start.api", measure.Bound{Of: "value", Limit: 8}
	floor := fmt.Sprintf("%.2g ms (one fdatasync, one fork and exec)", physical)
	switch o.name {
	case "CLI":
		name, limit = "start.cli", measure.Bound{Of: "value", Limit: 8}
		floor = fmt.Sprintf("%.2g ms (one fdatasync, two forks and execs)", physical+exec)
	case "HTTPS":
		name = "start.https"
	}
	row := measure.Row{
		Name: name, Unit: "ms", Value: measure.Median(o.all), CPUPerOp: measure.Number(peer.Ms(o.cpu) / float64(len(o.all))),
		Physical: floor, Durable: "yes: synchronous=FULL, answered after the sync",
		Note: fmt.Sprintf("p50 of %d; p90 %.3g, p99 %.3g ms", len(o.all), measure.Quantile(o.all, 0.9), measure.Quantile(o.all, 0.99)),
	}
	row.Rounds = len(o.rounds)
	alone := row
	alone.Judge(limit)
	if err := b.write(alone); err != nil {
		return err
	}
	version := ""
	if b.slurm != nil {
		version = b.slurm.Version
	}
	for _, p := range []struct {
		way           *way
		peer, version string
		bound         *measure.Bound
		durable       string
	}{
		{sbatch, "Slurm sbatch, tuned", version, &measure.Bound{Of: "ratio", Least: true, Limit: 20}, "both: state on the same disk"},
		{srun, "Slurm srun", version, &measure.Bound{Of: "ratio", Least: true, Limit: 2}, "both: state on the same disk"},
		{queue, "HyperQueue API", peer.HyperQueueVersion, nil, "ours yes, the peer not: no journal"},
	} {
		r := row
		r.Durable, r.Note = p.durable, ""
		if p.way.err != nil {
			r.Absent(p.peer, p.way.err.Error())
		} else {
			r.Against(p.peer, p.version, o.rounds, p.way.rounds, false)
			r.Note = fmt.Sprintf("peer: %d samples, p90 %.3g ms", len(p.way.all), measure.Quantile(p.way.all, 0.9))
			if p.bound != nil {
				r.Judge(*p.bound)
			}
		}
		if err := b.write(r); err != nil {
			return err
		}
	}
	return nil
}
