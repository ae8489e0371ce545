package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

const (
	burstCluster = "burst"
	burstConns   = 16
)

// burst submits many jobs at once to an empty cluster whose nodes take a while to boot, and looks
// how long after that the last one starts.
func burst(b *bench) error {
	const boot = 2 * time.Second
	jobs := b.size(340, 40)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := world.StartPlant(b.ctx, b.group, []string{self, "_plant"}, filepath.Join(b.dir, "burst"), boot)
	if err != nil {
		return err
	}
	defer p.Stop()
	c, err := p.Dial(b.ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Put(p.WS+"/computes/"+burstCluster, world.Cluster(clusterSize, 0, jobs, 0)); err != nil {
		return err
	}
	var last, first, taken, cpu, each []float64
	for round := range b.rounds {
		before := p.Own()
		r, err := oneBurst(b, p, fmt.Sprintf("r%d", round), jobs)
		if err != nil {
			return err
		}
		cpu = append(cpu, peer.Ms(p.Own().Since(before))/float64(jobs))
		late := make([]float64, jobs)
		for i, t := range r.started {
			late[i] = peer.Ms(t.Sub(r.calls[i].Add(boot)))
		}
		each, last = append(each, late...), append(last, slices.Max(late))
		end := slices.MaxFunc(r.started, time.Time.Compare)
		first, taken = append(first, peer.Ms(end.Sub(r.begun.Add(boot)))), append(taken, peer.Ms(r.accepted.Sub(r.begun)))
	}
	row := measure.Row{
		Name: "burst", Unit: "ms", Value: measure.Median(last), Rounds: b.rounds, CPUPerOp: measure.Number(measure.Median(cpu)),
		Physical: "0 ms beyond the boot time",
		Durable:  "yes: each job its own request, answered after the sync; each node and placement synced before the next step",
		Note: fmt.Sprintf("%d jobs at once over %d connections on an empty cluster, whose nodes take %v to boot: from a job's call plus the boot time to its start, the last of a round; "+
			"worst round %.3g, of all jobs p50 %.3g, p99 %.3g ms; from the first call plus the boot time to the last start %.3g ms, of which submitting took %.3g; "+
			"CPU is a job's and its node's whole life",
			jobs, burstConns, boot, slices.Max(last), measure.Median(each), measure.Quantile(each, 0.99), measure.Median(first), measure.Median(taken)),
	}
	row.Absent("Karpenter and KWOK", "none in this run")
	row.Judge(measure.Bound{Of: "value", Limit: 100})
	return b.write(row)
}

// bursted is one round.
type bursted struct {
	begun, accepted time.Time
	calls, started  []time.Time // by job
}

// oneBurst submits jobs over several connections, has runners report their starts and ends, and
// waits until the cluster is empty again.
func oneBurst(b *bench, p *world.Plant, prefix string, jobs int) (r bursted, err error) {
	w, err := p.Watch(b.ctx)
	if err != nil {
		return r, err
	}
	defer w.Close()
	conns := make([]*world.Conn, burstConns)
	for i := range conns {
		if conns[i], err = p.Dial(b.ctx, false); err != nil {
			return r, err
		}
		defer conns[i].Close()
	}
	r.calls, r.started = make([]time.Time, jobs), make([]time.Time, jobs)
	errs := make(chan error, burstConns+2)
	var wg sync.WaitGroup
	r.begun = time.Now()
	for i, c := range conns {
		wg.Go(func() {
			for k := i; k < jobs; k += burstConns {
				r.calls[k] = time.Now()
				if err := c.Submit(p.WS, fmt.Sprintf("%s-%d", prefix, k), world.JobOn(burstCluster, "sleep 3")); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	go func() {
		wg.Wait()
		r.accepted = time.Now()
		errs <- nil
	}()
	go func() { errs <- runners(b, p, prefix, r.started) }()
	go func() { errs <- emptied(w, jobs) }()
	limit := time.AfterFunc(time.Minute, w.Close)
	defer limit.Stop()
	for range 3 {
		if err := <-errs; err != nil {
			return r, err
		}
	}
	return r, nil
}

// runners delivers the reports of all tasks, each over a connection of its own as those of nodes
// are, and notes when they started.
func runners(b *bench, p *world.Plant, prefix string, started []time.Time) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ways := map[berth.TaskID]*world.Conn{}
	defer func() {
		wg.Wait()
		for _, c := range ways {
			c.Close()
		}
	}()
	failed := make(chan error, 2*len(started))
	for range 2 * len(started) {
		rs, err := p.Reports()
		if err != nil {
			return err
		}
		for _, rep := range rs {
			var k int
			if _, err := fmt.Sscanf(string(rep.Task), prefix+"-%d.", &k); err != nil {
				return fmt.Errorf("task %s: %w", rep.Task, err)
			}
			if rep.State == berth.TaskRunning {
				started[k] = rep.Times.Started
			}
			c := ways[rep.Task]
			if c == nil {
				if c, err = p.Dial(b.ctx, false); err != nil {
					return err
				}
				ways[rep.Task] = c
			}
			wg.Go(func() {
				if err := c.Report([]berth.Report{rep}); err != nil {
					failed <- err
				}
			})
		}
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// emptied waits until jobs have ended well and as many nodes are gone.
func emptied(w *world.Watch, jobs int) error {
	for done, gone := 0, 0; done < jobs || gone < jobs; {
		e, err := w.Next()
		if err != nil {
			return fmt.Errorf("after %d ends of %d jobs and of %d nodes: %w", done, jobs, gone, err)
		}
		switch {
		case e.Done() && e.Status != "Completed":
			return fmt.Errorf("job %s: %s", e.Job, e.Status)
		case e.Done():
			done++
		case e.Type == berth.EventNode && e.State == "gone":
			gone++
		}
	}
	return nil
}
