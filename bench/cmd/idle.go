package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// idle looks at a server that has run jobs and has nothing to do: memory, and CPU over ten seconds.
func idle(b *bench) error {
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "idle"))
	if err != nil {
		return err
	}
	defer s.Stop()
	if _, _, err := shortJobs(b, s, "job", 100); err != nil {
		return err
	}
	const span = 10 * time.Second
	if err := b.sleep(time.Duration(b.size(15, 2)) * time.Second); err != nil {
		return err
	}
	server, host := s.Processes()
	before, used := s.Own(), usage(s)
	if err := b.sleep(span); err != nil {
		return err
	}
	cpu := usage(s) - used
	how := "counted in nanoseconds, server and runner host"
	if _, ok := s.Usage(); !ok {
		cpu, how = peer.Ms(s.Own().Since(before)), "counted in ticks of 10 ms"
	}
	var rss, pss [2]float64
	for i, pids := range [][]int{server, host} {
		for _, p := range pids {
			r, q, err := measure.Memory(p)
			if err != nil {
				return err
			}
			rss[i], pss[i] = rss[i]+float64(r)/1e6, pss[i]+float64(q)/1e6
		}
	}
	memory := measure.Row{
		Name: "idle.memory", Unit: "MB", Value: rss[0],
		Note: fmt.Sprintf("RSS of the server after 100 jobs; runner host (%d processes) %.3g MB RSS; PSS: server %.3g, host %.3g, together %.3g MB",
			len(host), rss[1], pss[0], pss[1], pss[0]+pss[1]),
	}
	memory.Judge(measure.Bound{Of: "value", Limit: 60})
	if err := b.write(memory); err != nil {
		return err
	}
	together := measure.Row{Name: "idle.memory.all", Unit: "MB", Value: pss[0] + pss[1], Note: "PSS of the server and the runner host together"}
	together.Judge(measure.Bound{Of: "value", Limit: 60})
	if err := b.write(together); err != nil {
		return err
	}
	row := measure.Row{
		Name: "idle.cpu", Unit: "ms per 10 s", Value: cpu,
		Note: how + "; one tick of the clock, 10 ms or 0.1 % of a core, is what tools can show",
	}
	row.Judge(measure.Bound{Of: "value", Limit: 10})
	return b.write(row)
}

func (b *bench) sleep(d time.Duration) error {
	select {
	case <-b.ctx.Done():
		return b.ctx.Err()
	case <-time.After(d):
		return nil
	}
}
