package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/world"
)

// flipScript answers with the process of the replica, so that it can be killed.
const flipScript = "import os\n\ndef init():\n    pass\n\ndef run(data):\n    return {\"pid\": os.getppid(), \"got\": data}\n"

// flipLoad is what clients saw while an endpoint was treated badly.
type flipLoad struct {
	ctx      context.Context
	e        *world.Endpoint
	want     int64
	next     atomic.Int64
	answered atomic.Int64
	refused  atomic.Int64
	failed   atomic.Int64
	pid      atomic.Int64

	mu  sync.Mutex
	why string // of a failure
}

// client sends requests until there are enough; it calls again only where nobody answered the call.
func (f *flipLoad) client() {
	var c *scoreClient
	for {
		n := f.next.Add(1)
		if n > f.want {
			return
		}
		body := `{"n": ` + strconv.FormatInt(n, 10) + `}`
		fresh := newScoreClient(f.e.Host, true, f.e.Path, f.e.Key, body)
		if c != nil {
			fresh.conn, fresh.in = c.conn, c.in
		}
		c = fresh
		for f.ctx.Err() == nil {
			text, err := c.do(f.ctx)
			if errors.Is(err, errRefused) {
				f.refused.Add(1)
				time.Sleep(5 * time.Millisecond)
				continue
			}
			var v struct {
				Pid int64
				Got string
			}
			if err == nil {
				err = json.Unmarshal([]byte(text), &v)
			}
			if err == nil && v.Got != body {
				err = fmt.Errorf("the answer to another request: %s", text)
			}
			if err != nil {
				f.failed.Add(1)
				f.mu.Lock()
				f.why = err.Error()
				f.mu.Unlock()
				break
			}
			f.pid.Store(v.Pid)
			f.answered.Add(1)
			break
		}
	}
}

// flips sends requests while traffic is flipped, replicas are killed and the server is restarted.
func flips(b *bench) error {
	python, dir, err := b.scripts()
	if err != nil {
		return err
	}
	if err := writeScript(dir, "flip.py", flipScript); err != nil {
		return err
	}
	s, err := b.serving("flips", python)
	if err != nil {
		return err
	}
	defer s.Stop()
	e, err := s.Endpoint(b.ctx, "flips")
	if err != nil {
		return err
	}
	defer e.Delete()
	for _, name := range []string{"blue", "green"} {
		d := world.Deployment{Name: name, Dir: dir, Script: "flip.py", Count: 2, Properties: map[string]any{"berth.idempotent": "true"}}
		if err := errors.Join(e.Deploy(b.ctx, d), e.Settled(b.ctx, name, 2)); err != nil {
			return err
		}
	}
	if err := e.Traffic(b.ctx, map[string]int{"blue": 100}); err != nil {
		return err
	}
	f := &flipLoad{ctx: b.ctx, e: e, want: int64(b.size(100_000, 5_000))}
	var clients sync.WaitGroup
	begun := time.Now()
	for range 8 {
		clients.Go(f.client)
	}
	err = f.disturb(b, s, b.size(20, 6), b.size(5, 2), b.size(2, 1))
	clients.Wait()
	if err != nil {
		return err
	}
	row := measure.Row{
		Name: "flips", Unit: "failed", Value: float64(f.failed.Load()),
		Note: fmt.Sprintf("of %d requests of 8 clients during %d flips, %d replicas killed and %d restarts of the server, in %.3g s; %d attempts found no server and were repeated",
			f.want, b.size(20, 6), b.size(5, 2), b.size(2, 1), time.Since(begun).Seconds(), f.refused.Load()),
	}
	if f.why != "" {
		row.Note += "; " + f.why
	}
	row.Judge(measure.Bound{Of: "value", Limit: 0})
	return b.write(row)
}

// disturb spreads flips, kills and restarts over the requests.
func (f *flipLoad) disturb(b *bench, s *world.Server, flips, kills, restarts int) error {
	steps := flips + kills + restarts
	names := []string{"blue", "green"}
	for i := range steps {
		due := f.want * int64(i+1) / int64(steps+1)
		for f.answered.Load()+f.failed.Load() < due {
			if err := b.sleep(5 * time.Millisecond); err != nil {
				return err
			}
		}
		var err error
		switch {
		case kills > 0 && i%(steps/5+1) == 1:
			kills--
			err = killReplica(int(f.pid.Load()))
		case restarts > 0 && i%(steps/3+1) == 2:
			restarts--
			err = s.Restart(b.ctx, syscall.SIGTERM)
		case flips > 0:
			flips--
			err = f.e.Traffic(b.ctx, map[string]int{names[(flips+1)%2]: 100})
		case kills > 0:
			kills--
			err = killReplica(int(f.pid.Load()))
		default:
			restarts--
			err = s.Restart(b.ctx, syscall.SIGTERM)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
