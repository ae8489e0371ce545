package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// watch has one writer and a thousand readers of the event stream: how late the news of a
// submission reaches them.
func watch(b *bench) error {
	watchers, writes := b.size(1000, 100), b.size(50, 10)
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "watch"))
	if err != nil {
		return err
	}
	defer s.Stop()
	if _, _, err := shortJobs(b, s, "warm", 10); err != nil {
		return err
	}
	server, _ := s.Processes()
	rss0, _, err := measure.Memory(server[0])
	if err != nil {
		return err
	}
	var mu sync.Mutex
	sent := make(map[string]time.Time, writes)
	var late []float64
	var wg sync.WaitGroup
	var open []*world.Watch
	for range watchers {
		w, err := s.Watch(b.ctx)
		if err != nil {
			return err
		}
		open = append(open, w)
		wg.Go(func() {
			var mine []float64
			for seen := 0; seen < writes; {
				e, err := w.Next()
				if err != nil {
					break
				}
				if e.Type != "job.created" || !strings.HasPrefix(e.Job, "fan-") {
					continue
				}
				now := time.Now()
				mu.Lock()
				at := sent[e.Job]
				mu.Unlock()
				mine = append(mine, peer.Ms(now.Sub(at)))
				seen++
			}
			mu.Lock()
			late = append(late, mine...)
			mu.Unlock()
		})
	}
	limit := time.AfterFunc(2*time.Minute, func() {
		for _, w := range open {
			w.Close()
		}
	})
	defer limit.Stop()
	c, err := s.Dial(b.ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	before := s.Own()
	job := world.Job("/bin/true")
	for i := range writes {
		name := fmt.Sprintf("fan-%d", i)
		mu.Lock()
		sent[name] = time.Now()
		mu.Unlock()
		if err := c.Submit(s.WS, name, job); err != nil {
			return err
		}
		if err := b.sleep(200 * time.Millisecond); err != nil {
			return err
		}
	}
	wg.Wait()
	cpu := s.Own().Since(before)
	rss1, _, err := measure.Memory(server[0])
	if err != nil {
		return err
	}
	for _, w := range open {
		w.Close()
	}
	if len(late) != watchers*writes {
		return fmt.Errorf("%d deliveries of %d", len(late), watchers*writes)
	}
	return b.write(measure.Row{
		Name: "watch.fanout", Unit: "ms", Value: measure.Quantile(late, 0.99), CPUPerOp: measure.Number(peer.Ms(cpu) / float64(writes)),
		Note: fmt.Sprintf("p99 from the call to the reader, %d readers, %d submissions; p50 %.3g ms; %.3g KB of memory per reader; CPU is per submission; "+
			"the readers run on the same cores", watchers, writes, measure.Median(late), float64(rss1-rss0)/1e3/float64(watchers)),
	})
}
