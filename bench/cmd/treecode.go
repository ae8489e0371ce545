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

// treeCode times `berth run` of a folder of code, to the first instruction: unchanged since the
// last run, and seen for the first time.
func treeCode(b *bench) error {
	const files, size = 1000, 8 << 10
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "treecode"))
	if err != nil {
		return err
	}
	defer s.Stop()
	w, err := s.Watch(b.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	run := func(dir string) (float64, error) {
		cmd := s.CLI(b.ctx, "run", "--no-wait", "--", b.stamp, b.pipe.Path)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+filepath.Join(b.dir, "usercache"))
		t := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("berth run: %w: %s", err, out)
		}
		return b.first(w, t)
	}
	var first, again, copied, cpus []float64
	copyTo := filepath.Join(b.dir, "copy")
	for round := range b.rounds {
		dir := filepath.Join(b.dir, fmt.Sprintf("code%d", round))
		if err := peer.MakeTree(dir, files, size); err != nil {
			return err
		}
		// The folder was not written this moment: what the harness wrote is not part of the upload.
		if err := peer.Settle(dir); err != nil {
			return err
		}
		ms, err := run(dir)
		if err != nil {
			return err
		}
		first = append(first, ms)
		if _, err := run(dir); err != nil { // files that were written just now are not recognised by stat
			return err
		}
		var ours, theirs []float64
		before := s.Own()
		for range b.size(10, 3) {
			if ms, err = run(dir); err != nil {
				return err
			}
			ours = append(ours, ms)
		}
		cpus = append(cpus, peer.Ms(s.Own().Since(before))/float64(len(ours)))
		for range b.size(10, 3) {
			if ms, err = peer.CopyExec(b.ctx, dir, copyTo, b.stamp, b.pipe); err != nil {
				return err
			}
			theirs = append(theirs, ms)
		}
		again, copied = append(again, measure.Median(ours)), append(copied, measure.Median(theirs))
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	row := measure.Row{
		Name: "tree.code", Unit: "ms", Value: measure.Median(again), CPUPerOp: measure.Number(measure.Median(cpus)),
		Durable: "ours yes: answered after the sync; the peer keeps nothing",
		Note:    fmt.Sprintf("`berth run --no-wait` of %d unchanged files of %d bytes, to the first instruction", files, size),
	}
	row.Against("cp -a and exec", "", again, copied, false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 2})
	if err := b.write(row); err != nil {
		return err
	}
	row = measure.Row{
		Name: "tree.code.first", Unit: "ms", Value: measure.Median(first), Durable: row.Durable,
		Note: "the same folder for the first time ever: read, hashed, sent, kept and put on the node",
	}
	row.Against("cp -a and exec", "", first, copied, false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 1.0 / 3})
	return b.write(row)
}
