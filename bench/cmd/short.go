package main

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// tally is the rounds of one side of many short commands.
type tally struct {
	err  error
	rate []float64
	cpu  []float64
	own  []float64
}

func (t *tally) add(r peer.Result, own float64) {
	t.rate, t.cpu, t.own = append(t.rate, r.PerSecond), append(t.cpu, r.CPU), append(t.own, own)
}

// short runs thousands of jobs that do nothing, each submitted by itself and durable, and waits for
// the last to be Completed.
func short(b *bench) error {
	n, slurmN := b.size(5000, 300), b.size(1000, 20)
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "short"))
	if err != nil {
		return err
	}
	defer s.Stop()
	var ours, xargs, forks, queue, slurm tally
	cluster, err := b.slurmPeer()
	slurm.err = err
	hq, err := b.queuePeer()
	queue.err = err
	if _, _, err := shortJobs(b, s, "warm", 100); err != nil {
		return err
	}
	for round := range b.rounds {
		r, own, err := shortJobs(b, s, fmt.Sprintf("r%d", round), n)
		if err != nil {
			return err
		}
		ours.add(r, own)
		if r, err = peer.Xargs(b.ctx, b.group, n); err != nil {
			return err
		}
		xargs.add(r, 0)
		if r, err = peer.Forks(b.ctx, n); err != nil {
			return err
		}
		forks.add(r, 0)
		if queue.err == nil {
			if r, own, err = hq.Tasks(n); err != nil {
				return err
			}
			queue.add(r, own)
		}
		if slurm.err == nil {
			if r, err = cluster.Array(b.ctx, slurmN); err != nil {
				return err
			}
			slurm.add(r, 0)
		}
	}
	return b.writeShort(n, ours, xargs, forks, queue, slurm)
}

func (b *bench) writeShort(n int, ours, xargs, forks, queue, slurm tally) error {
	row := measure.Row{
		Name: "short", Unit: "jobs/s", Value: measure.Median(ours.rate), CPUPerOp: measure.Number(measure.Median(ours.own)),
		Physical: fmt.Sprintf("%.4g/s, %.2g ms CPU each (fork and exec from Go, two at a time)", measure.Median(forks.rate), measure.Median(forks.cpu)),
		Durable:  "yes: each job its own request, answered after the sync",
	}
	alone := row
	alone.Rounds = b.rounds
	alone.Note = fmt.Sprintf("%d jobs a round from 16 connections; of the own CPU, %.3g ms is the runner host's; %.3g ms CPU per job with the commands", n, b.hostCPU, measure.Median(ours.cpu))
	alone.Judge(measure.Bound{Of: "cpu", Limit: 1})
	if err := b.write(alone); err != nil {
		return err
	}
	version := ""
	if b.slurm != nil {
		version = b.slurm.Version
	}
	for _, p := range []struct {
		t                            tally
		peer, version, durable, note string
		bound                        *measure.Bound
	}{
		{xargs, "xargs -P2", peer.XargsVersion(b.ctx), "ours yes, the peer keeps nothing", "", &measure.Bound{Of: "ratio", Least: true, Limit: 0.3}},
		{
			queue, "HyperQueue, one job of many tasks", peer.HyperQueueVersion, "ours yes, the peer not: no journal",
			fmt.Sprintf("peer's own CPU %.3g ms per task", measure.Median(queue.own)), nil,
		},
		{slurm, "Slurm array, tuned", version, "both: state on the same disk", "an array of 1,000", &measure.Bound{Of: "ratio", Least: true, Limit: 6}},
	} {
		r := row
		r.Durable, r.Note = p.durable, p.note
		if p.t.err != nil {
			r.Absent(p.peer, p.t.err.Error())
		} else {
			r.Against(p.peer, p.version, ours.rate, p.t.rate, true)
			r.PeerCPUPerOp = measure.Number(measure.Median(p.t.cpu))
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

// shortJobs submits n jobs over 16 connections and reads their ends from the event stream. own is
// the CPU of the server and the runner host per job, in milliseconds; the result's CPU has the
// commands too.
func shortJobs(b *bench, s *world.Server, prefix string, n int) (r peer.Result, own float64, err error) {
	const connections = 16
	w, err := s.Watch(b.ctx)
	if err != nil {
		return r, 0, err
	}
	defer w.Close()
	conns := make([]*world.Conn, connections)
	for i := range conns {
		if conns[i], err = s.Dial(b.ctx, false); err != nil {
			return r, 0, err
		}
		defer conns[i].Close()
	}
	before, all := s.Own(), usage(s)
	wall, err := submitAll(s, w, conns, prefix, n, world.Job("/bin/true"), 3*time.Minute)
	if err != nil {
		return r, 0, err
	}
	r = peer.Result{PerSecond: float64(n) / wall.Seconds(), CPU: (usage(s) - all) / float64(n)}
	after := s.Own()
	b.hostCPU = 0
	if _, host := s.Processes(); len(host) > 0 {
		b.hostCPU = peer.Ms(measure.CPUs(host).Since(before)) / float64(n)
	}
	return r, peer.Ms(after.Since(before)) / float64(n), nil
}

// submitAll submits n equal jobs over some connections, and returns how long it took until the last
// of them had ended.
func submitAll(s *world.Server, w *world.Watch, conns []*world.Conn, prefix string, n int, job []byte, most time.Duration) (time.Duration, error) {
	errs := make(chan error, len(conns)+1)
	t := time.Now()
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			for k := i; k < n; k += len(conns) {
				if err := c.Submit(s.WS, fmt.Sprintf("%s-%d", prefix, k), job); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	go func() { errs <- allDone(w, n) }()
	limit := time.AfterFunc(most, w.Close)
	defer limit.Stop()
	err := <-errs
	wall := time.Since(t)
	wg.Wait()
	return wall, err
}

// allDone reads events until n jobs are Completed. Another end is an error.
func allDone(w *world.Watch, n int) error {
	done := make(map[string]bool, n)
	for len(done) < n {
		e, err := w.Next()
		if err != nil {
			return fmt.Errorf("after %d of %d jobs: %w", len(done), n, err)
		}
		if e.Done() {
			if e.Status != "Completed" {
				return fmt.Errorf("job %s: %s: %s", e.Job, e.Status, e.Reason)
			}
			done[e.Job] = true
		}
	}
	return nil
}

func usage(s *world.Server) float64 {
	d, _ := s.Usage()
	return peer.Ms(d)
}
