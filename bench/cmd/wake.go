package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// wake measures the first answer of a small model after nobody asked for a while: from a worker
// that is stopped, and from one that is forked, beside a start of Azure's inference server.
func wake(b *bench) error {
	python, dir, err := b.scripts()
	if err != nil {
		return err
	}
	s, err := b.serving("wake", python)
	if err != nil {
		return err
	}
	defer s.Stop()
	e, err := s.Endpoint(b.ctx, "iris")
	if err != nil {
		return err
	}
	defer e.Delete()
	times := map[string][]float64{}
	forms := []struct {
		name  string
		props map[string]any
		rests func(pid string) bool
	}{
		{"frozen", map[string]any{"berth.freeze": "100ms", "berth.fork": "1h"}, func(pid string) bool { return processState(pid) == "T" }},
		{"fork", map[string]any{"berth.freeze": "never", "berth.fork": "100ms"}, func(pid string) bool { return processState(pid) == "" }},
	}
	for _, f := range forms {
		pidfile := filepath.Join(b.dir, "pid-"+f.name)
		err := errors.Join(
			e.Deploy(b.ctx, world.Deployment{Name: f.name, Dir: dir, Script: "iris.py", Count: 1, Env: map[string]any{"PIDFILE": pidfile, "MODEL": dir, "OMP_NUM_THREADS": "1"}, Properties: f.props}),
			e.Settled(b.ctx, f.name, 1), e.Traffic(b.ctx, map[string]int{f.name: 100}))
		if err != nil {
			return err
		}
		for range 2 * b.rounds {
			if err := b.untilRests(pidfile, f.rests); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			c := newScoreClient(e.Host, true, e.Path, e.Key, scoreBody)
			at := time.Now()
			_, err := c.do(b.ctx)
			took := peer.Ms(time.Since(at))
			c.close()
			if err != nil {
				return err
			}
			times[f.name] = append(times[f.name], took)
		}
	}
	script := peer.Script{Python: python, Dir: dir, Name: "iris"}
	for i := range b.size(b.rounds, 2) {
		at := time.Now()
		x, err := peer.StartAzmlinfsrv(b.ctx, b.group, script, filepath.Join(b.dir, "wake-azmlinfsrv"+strconv.Itoa(i)))
		if err == nil {
			err = b.firstAnswer(x)
			times["cold"] = append(times["cold"], peer.Ms(time.Since(at)))
			x.Stop()
		}
		if err != nil {
			return err
		}
	}
	for name, limit := range map[string]float64{"frozen": 15, "fork": 60} {
		row := measure.Row{
			Name: "wake." + name, Unit: "ms", Value: measure.Median(times[name]),
			Note: fmt.Sprintf("first answer over a new connection, HTTPS included; p90 %.3g ms", measure.Quantile(times[name], 0.9)),
		}
		row.Judge(measure.Bound{Of: "value", Limit: limit})
		if err := b.write(row); err != nil {
			return err
		}
	}
	row := measure.Row{Name: "wake.fork", Unit: "ms", Value: measure.Median(times["fork"]), Note: "first answer; the peer's from the start of its process"}
	row.Against("azmlinfsrv, cold", "", times["fork"], times["cold"], false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 20})
	return b.write(row)
}

// untilRests waits until the worker whose process is in a file rests.
func (b *bench) untilRests(pidfile string, rests func(pid string) bool) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		pid, err := os.ReadFile(pidfile)
		if err == nil && len(pid) > 0 && rests(strings.TrimSpace(string(pid))) {
			return b.sleep(200 * time.Millisecond)
		}
		if err := b.sleep(50 * time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("the worker does not rest")
}

// processState is the letter that Linux has for the state of a process; "" if there is none.
func processState(pid string) string {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

// endpoints looks at a server with a thousand endpoints that nobody calls.
func endpoints(b *bench) error {
	_, dir, err := b.scripts()
	if err != nil {
		return err
	}
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "endpoints"))
	if err != nil {
		return err
	}
	defer s.Stop()
	n := b.size(1000, 100)
	for i := range n {
		e, err := s.Endpoint(b.ctx, "idle-"+strconv.Itoa(i))
		if err == nil {
			err = e.Deploy(b.ctx, world.Deployment{Name: "main", Dir: dir, Script: "echo.py", Count: 0, Properties: map[string]any{"berth.min": "0", "berth.max": "1"}})
		}
		if err == nil {
			err = e.Traffic(b.ctx, map[string]int{"main": 100})
		}
		if err == nil {
			err = e.Settled(b.ctx, "main", 0)
		}
		if err != nil {
			return err
		}
	}
	if err := b.sleep(time.Duration(b.size(15, 7)) * time.Second); err != nil {
		return err
	}
	server, _ := s.Processes()
	before := s.Own()
	if err := b.sleep(10 * time.Second); err != nil {
		return err
	}
	cpu := peer.Ms(s.Own().Since(before))
	rss, _, err := measure.Memory(server[0])
	if err != nil {
		return err
	}
	row := measure.Row{Name: "endpoints.idle.memory", Unit: "MB", Value: float64(rss) / 1e6, Note: fmt.Sprintf("RSS of a server with %d endpoints, each with a deployment that has no replica", n)}
	row.Judge(measure.Bound{Of: "value", Limit: 100})
	if err := b.write(row); err != nil {
		return err
	}
	row = measure.Row{Name: "endpoints.idle.cpu", Unit: "ms per 10 s", Value: cpu, Note: "server and runner host; 100 is 1 % of a core"}
	row.Judge(measure.Bound{Of: "value", Limit: 100})
	return b.write(row)
}
