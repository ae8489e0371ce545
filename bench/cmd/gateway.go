package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// gatewayWorkers is how many workers stand behind each proxy, and how many clients call.
const gatewayWorkers = 4

// gateway compares what a request costs in the gateway with HAProxy and nginx. All three speak
// HTTPS to clients that keep their connections, check a key, and pass requests on to workers of the
// same program; only the CPU of the proxy counts.
func gateway(b *bench) error {
	python, dir, err := b.scripts()
	if err != nil {
		return err
	}
	s, err := b.serving("gateway", python)
	if err != nil {
		return err
	}
	defer s.Stop()
	e, err := s.Endpoint(b.ctx, "echo")
	if err != nil {
		return err
	}
	defer e.Delete()
	err = errors.Join(e.Deploy(b.ctx, world.Deployment{Name: "main", Dir: dir, Script: "echo.py", Count: 1, Workers: gatewayWorkers}), e.Settled(b.ctx, "main", 1), e.Traffic(b.ctx, map[string]int{"main": 100}))
	if err != nil {
		return err
	}
	w, err := peer.StartWorker(b.ctx, b.group, peer.Script{Python: python, Dir: dir, Name: "echo"}, filepath.Join(b.dir, "gateway-workers"), gatewayWorkers)
	if err != nil {
		return err
	}
	defer w.Stop()
	body := `{"data": "` + strings.Repeat("x", 1000) + `"}`
	clients := func(address, path, key string) (out []*scoreClient) {
		for range gatewayWorkers {
			out = append(out, newScoreClient(address, true, path, key, body))
		}
		return out
	}
	ofPids := func(pids []int) func() time.Duration {
		return func() (sum time.Duration) {
			for _, d := range measure.CPUs(pids) {
				sum += d
			}
			return sum
		}
	}
	server, _ := s.Processes()
	all := []*contender{{name: "berth", clients: clients(e.Host, e.Path, e.Key), cpu: ofPids(server)}}
	for _, name := range []string{"haproxy", "nginx"} {
		p, err := peer.StartProxy(b.ctx, b.group, name, filepath.Join(b.dir, "gateway-"+name), e.Key, w.Addresses)
		if err != nil {
			row := measure.Row{Name: "gateway", Unit: "µs of CPU per request"}
			row.Absent(name, err.Error())
			if err := b.write(row); err != nil {
				return err
			}
			continue
		}
		defer p.Stop()
		all = append(all, &contender{name: name, version: p.Version, clients: clients(p.Address, "/score", e.Key), cpu: ofPids(p.Processes())})
	}
	if err := b.contest(all, time.Duration(b.size(5, 2))*time.Second); err != nil {
		return err
	}
	return b.compare("gateway", all, func(peer string) measure.Bound {
		if peer == "haproxy" {
			return measure.Bound{Of: "ratio", Least: true, Limit: 0.5}
		}
		return measure.Bound{Of: "ratio", Least: true, Limit: 0.25}
	}, "1 kB POST over HTTPS, 4 connections that are kept, 4 workers")
}

// serving starts a server whose replicas use a Python.
func (b *bench) serving(name, python string) (*world.Server, error) {
	path := os.Getenv("PATH")
	if err := os.Setenv("PATH", filepath.Dir(python)+":"+path); err != nil {
		return nil, err
	}
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, name))
	return s, errors.Join(err, os.Setenv("PATH", path))
}

// score compares the scoring worker with Azure's inference server and with FastAPI, one process
// each.
func score(b *bench) error {
	python, dir, err := b.scripts()
	if err != nil {
		return err
	}
	for _, kind := range []string{"echo", "iris"} {
		script := peer.Script{Python: python, Dir: dir, Name: kind}
		var all []*contender
		for _, start := range []func() (*peer.Scoring, error){
			func() (*peer.Scoring, error) {
				return peer.StartWorker(b.ctx, b.group, script, filepath.Join(b.dir, kind+"-worker"), 1)
			},
			func() (*peer.Scoring, error) {
				return peer.StartAzmlinfsrv(b.ctx, b.group, script, filepath.Join(b.dir, kind+"-azmlinfsrv"))
			},
			func() (*peer.Scoring, error) {
				return peer.StartFastAPI(b.ctx, b.group, script, filepath.Join(b.dir, kind+"-fastapi"))
			},
		} {
			x, err := start()
			if err != nil {
				return err
			}
			defer x.Stop()
			if err := b.firstAnswer(x); err != nil {
				return err
			}
			c := &contender{name: x.Name, cpu: func() time.Duration { d, _ := x.Usage(); return d }}
			for range 4 {
				c.clients = append(c.clients, newScoreClient(x.Address, false, "/score", "", scoreBody))
			}
			all = append(all, c)
		}
		if err := b.contest(all, time.Duration(b.size(5, 2))*time.Second); err != nil {
			return err
		}
		err := b.compare("score."+kind, all, func(peer string) measure.Bound {
			if peer == "azmlinfsrv" {
				return measure.Bound{Of: "ratio", Least: true, Limit: 3}
			}
			return measure.Bound{Of: "ratio", Least: true, Limit: 1}
		}, "4 connections, one process that scores")
		if err != nil {
			return err
		}
	}
	return nil
}

// firstAnswer waits until a server answers.
func (b *bench) firstAnswer(x *peer.Scoring) error {
	c := newScoreClient(x.Address, false, "/score", "", scoreBody)
	defer c.close()
	for end := time.Now().Add(time.Minute); ; {
		_, err := c.do(b.ctx)
		if err == nil {
			return nil
		}
		if b.ctx.Err() != nil || time.Now().After(end) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// killReplica ends a process; one that is gone is fine.
func killReplica(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
