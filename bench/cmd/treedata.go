package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// treeData times tasks that read a data asset of many files, from the submission to the first
// instruction: the first task of a node, which brings it there, and those after it.
func treeData(b *bench) error {
	files, size := b.size(100_000, 5000), 10<<10
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "treedata"))
	if err != nil {
		return err
	}
	defer s.Stop()
	dir := filepath.Join(b.dir, "data")
	defer os.RemoveAll(dir)
	if err := peer.MakeTree(dir, files, size); err != nil {
		return err
	}
	t := time.Now()
	if out, err := s.CLI(b.ctx, "data", "create", "-n", "many", "-v", "1", "-t", "uri_folder", "-p", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("berth data create: %w: %s", err, out)
	}
	sent := time.Since(t)
	reader, err := b.newReader(s, "uri_folder", "many")
	if err != nil {
		return err
	}
	defer reader.close()
	ssh, absent := peer.StartSSH(b.ctx, filepath.Join(b.dir, "ssh"))
	if absent == nil {
		defer ssh.Stop()
	}
	var first, again, copied, synced, cpus []float64
	for round := range b.rounds {
		if err := os.RemoveAll(filepath.Join(s.Home, "host", "cache")); err != nil { // it may be deleted at any time
			return err
		}
		ms, err := reader.task(fmt.Sprintf("first-%d", round))
		if err != nil {
			return err
		}
		first = append(first, ms)
		before := s.Own()
		var later []float64
		for i := range 5 {
			if ms, err = reader.task(fmt.Sprintf("later-%d-%d", round, i)); err != nil {
				return err
			}
			later = append(later, ms)
		}
		again, cpus = append(again, measure.Median(later)), append(cpus, peer.Ms(s.Own().Since(before))/5)
		if ms, err = peer.CopyExec(b.ctx, dir, filepath.Join(b.dir, "copy"), b.stamp, b.pipe); err != nil {
			return err
		}
		copied = append(copied, ms)
		if absent == nil {
			if ms, err = ssh.RsyncExec(b.ctx, dir, filepath.Join(b.dir, "synced"), b.stamp, b.pipe); err != nil {
				return err
			}
			synced = append(synced, ms)
		}
	}
	what := fmt.Sprintf("%d files of %d bytes, ro_mount; uploaded and registered in %.3g s", files, size, sent.Seconds())
	row := measure.Row{
		Name: "tree.data", Unit: "ms", Value: measure.Median(again), Rounds: b.rounds, CPUPerOp: measure.Number(measure.Median(cpus)),
		Note: "a task on a node that has read it before, submit to first instruction: " + what,
	}
	row.Judge(measure.Bound{Of: "value", Limit: 50})
	if err := b.write(row); err != nil {
		return err
	}
	row = measure.Row{Name: "tree.data.first", Unit: "ms", Value: measure.Median(first), Note: "the first task of a node on the server's disk: " + what}
	row.Against("cp -a and exec", "", first, copied, false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 1 / 1.5})
	if err := b.write(row); err != nil {
		return err
	}
	row = measure.Row{Name: "tree.data.rsync", Unit: "ms", Value: measure.Median(first), Note: "the first task of a node, beside rsync over ssh to this machine: " + what}
	if absent != nil {
		row.Absent("rsync over ssh and exec", absent.Error())
		return b.write(row)
	}
	row.Against("rsync over ssh and exec", "", first, synced, false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 1 / 0.7})
	return b.write(row)
}

// reader submits jobs that read a data asset.
type reader struct {
	b   *bench
	s   *world.Server
	c   *world.Conn
	w   *world.Watch
	job []byte
}

func (b *bench) newReader(s *world.Server, kind, asset string) (*reader, error) {
	w, err := s.Watch(b.ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.Dial(b.ctx, false)
	if err != nil {
		w.Close()
		return nil, err
	}
	job := fmt.Appendf(nil, `{"properties":{"jobType":"Command","command":"%s %s # ${{inputs.data}}","computeId":"azureml:local","inputs":{"data":`+
		`{"jobInputType":"%s","uri":"azureml:%s:1","mode":"ReadOnlyMount"}}}}`, b.stamp, b.pipe.Path, kind, asset)
	return &reader{b: b, s: s, c: c, w: w, job: job}, nil
}

// task runs one under a name: the milliseconds to its first instruction.
func (r *reader) task(name string) (float64, error) {
	t := time.Now()
	if err := r.c.Submit(r.s.WS, name, r.job); err != nil {
		return 0, err
	}
	return r.b.first(r.w, t)
}

func (r *reader) close() {
	r.w.Close()
	r.c.Close()
}
