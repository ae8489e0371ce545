package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// trackPush logs one point after the other to a run that a few clients watch: how late each point
// reaches them, from before it was sent. It is durable before it is pushed.
func trackPush(b *bench) error {
	const watchers = 10
	points := b.size(500, 50)
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "push"))
	if err != nil {
		return err
	}
	defer s.Stop()
	k := trackForms[0].ours(b.ctx, s, nil)
	k.runs, k.calls = make([]string, 1), make([]int, 1)
	if err := k.ready(); err != nil {
		return err
	}
	if k.runs[0], err = k.create(0); err != nil {
		return err
	}
	p := push{sent: make([]time.Time, points+1)}
	log := func(step int) error {
		p.mu.Lock()
		p.sent[step] = time.Now()
		p.mu.Unlock()
		_, err := k.call(0, "runs/log-metric", fmt.Sprintf(`{"run_id": %q, "key": "loss", "value": %d, "timestamp": 1, "step": %d}`, k.runs[0], step, step))
		return err
	}
	if err := log(0); err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, watchers)
	ready := make(chan struct{}, watchers)
	for i := range watchers {
		c, err := s.Dial(b.ctx, true)
		if err != nil {
			return err
		}
		limit := time.AfterFunc(2*time.Minute, c.Close)
		wg.Go(func() {
			defer limit.Stop()
			defer c.Close()
			errs[i] = p.watch(c, "/mlflow/v2.0"+s.WS+"/api/2.0/berth/metrics/stream?run_id="+k.runs[0], func() { ready <- struct{}{} })
			ready <- struct{}{}
		})
	}
	for range watchers {
		<-ready
	}
	before := s.Own()
	var took []float64
	for step := 1; step <= points; step++ {
		at := time.Now()
		if err := log(step); err != nil {
			return err
		}
		took = append(took, peer.Ms(time.Since(at)))
		if err := b.sleep(10 * time.Millisecond); err != nil {
			return err
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	cpu := s.Own().Since(before)
	q := func(f float64) float64 { return measure.Quantile(p.late, f) }
	row := measure.Row{
		Name: "track.push", Unit: "ms", Value: q(0.99), CPUPerOp: measure.Number(peer.Ms(cpu) / float64(points)), Durable: "SQLite, synchronous=FULL; points synced",
		Note: fmt.Sprintf("p99 from the call that logs a point to the watcher that has it, %d points, %d watchers; p50 %.3g ms, p90 %.3g ms, most %.3g ms; the call itself takes %.3g ms; CPU is per point",
			points, watchers, q(0.5), q(0.9), q(1), measure.Median(took)),
	}
	row.Judge(measure.Bound{Of: "value", Limit: 50})
	return b.write(row)
}

// push is how late points come.
type push struct {
	mu   sync.Mutex
	sent []time.Time // by step
	late []float64   // milliseconds
}

// watch reads a stream of points until the last one is there. first is called at the first, which
// was there before.
func (p *push) watch(c *world.Conn, path string, first func()) error {
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		_, err := c.Copy(w, path)
		w.CloseWithError(errors.Join(err, io.ErrUnexpectedEOF))
	}()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		now := time.Now()
		var v struct{ Step int }
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			return err
		}
		if v.Step == 0 {
			first()
			continue
		}
		p.mu.Lock()
		p.late = append(p.late, peer.Ms(now.Sub(p.sent[v.Step])))
		p.mu.Unlock()
		if v.Step == len(p.sent)-1 {
			return nil
		}
	}
	return lines.Err()
}
