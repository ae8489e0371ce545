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

// cancel asks thousands of waiting jobs to end by one call, and waits for the last of them to be
// Canceled.
func cancel(b *bench) error {
	n := b.size(5000, 300)
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "cancel"))
	if err != nil {
		return err
	}
	defer s.Stop()
	var answered, ended, cpus []float64
	for round := range b.rounds {
		call, all, cpu, err := cancelJobs(b, s, fmt.Sprintf("c%d", round), n)
		if err != nil {
			return err
		}
		answered, ended, cpus = append(answered, call), append(ended, all), append(cpus, cpu/float64(n))
	}
	row := measure.Row{
		Name: "cancel", Unit: "ms", Value: measure.Median(ended), Rounds: b.rounds, CPUPerOp: measure.Number(measure.Median(cpus)),
		Durable: "yes: answered after the sync",
		Note:    fmt.Sprintf("%d jobs by one call, to the last Canceled; the call itself %.3g ms; CPU is per job", n, measure.Median(answered)),
	}
	row.Judge(measure.Bound{Of: "value", Limit: 1000})
	return b.write(row)
}

// cancelJobs submits n jobs and cancels them: milliseconds to the answer and to the last end, and
// the server's CPU meanwhile.
func cancelJobs(b *bench, s *world.Server, prefix string, n int) (call, all, cpu float64, err error) {
	const connections = 16
	job, errs := world.Job("sleep 1000"), make(chan error, connections)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			c, err := s.Dial(b.ctx, false)
			for k := i; k < n && err == nil; k += connections {
				err = c.Submit(s.WS, fmt.Sprintf("%s-%d", prefix, k), job)
			}
			errs <- err
		})
	}
	wg.Wait()
	for range connections {
		if err := <-errs; err != nil {
			return 0, 0, 0, err
		}
	}
	w, err := s.Watch(b.ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	defer w.Close()
	c, err := s.Dial(b.ctx, false)
	if err != nil {
		return 0, 0, 0, err
	}
	defer c.Close()
	limit := time.AfterFunc(3*time.Minute, w.Close)
	defer limit.Stop()
	before, t := s.Own(), time.Now()
	if err := c.Post(s.WS+"/cancelJobs", []byte(`{"all": true}`)); err != nil {
		return 0, 0, 0, err
	}
	call = peer.Ms(time.Since(t))
	done := map[string]bool{}
	for len(done) < n {
		e, err := w.Next()
		if err != nil {
			return 0, 0, 0, fmt.Errorf("after %d of %d jobs: %w", len(done), n, err)
		}
		if e.Done() {
			if e.Status != "Canceled" {
				return 0, 0, 0, fmt.Errorf("job %s: %s", e.Job, e.Status)
			}
			done[e.Job] = true
		}
	}
	return call, peer.Ms(time.Since(t)), peer.Ms(s.Own().Since(before)), nil
}
