package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// snapshot times how the command line finds out that a large folder is unchanged, beside git.
func snapshot(b *bench) error {
	files := b.size(100_000, 5000)
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "snapshot"))
	if err != nil {
		return err
	}
	defer s.Stop()
	dir := filepath.Join(b.dir, "folder")
	defer os.RemoveAll(dir)
	if err := peer.MakeTree(dir, files, 100); err != nil {
		return err
	}
	git := func(args ...string) *exec.Cmd {
		return exec.CommandContext(b.ctx, "git", append([]string{"-C", dir, "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"}, args...)...)
	}
	_, gitErr := exec.LookPath("git")
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}} {
		if gitErr != nil {
			break
		}
		if out, err := git(args...).CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	ours := func() *exec.Cmd {
		cmd := s.CLI(b.ctx, "run", "--no-wait", "--yes", "--", "true")
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+filepath.Join(b.dir, "usercache"))
		return cmd
	}
	var mine, theirs, cpus []float64
	for range 2 { // files that were written just now are not recognised by stat
		if out, err := ours().CombinedOutput(); err != nil {
			return fmt.Errorf("berth run: %w: %s", err, out)
		}
		time.Sleep(2 * time.Second)
	}
	for range b.rounds {
		ms, cpu, _, err := listed(ours())
		if err != nil {
			return err
		}
		mine, cpus = append(mine, ms), append(cpus, cpu)
		if gitErr == nil {
			if ms, _, _, err = listed(git("status", "--porcelain")); err != nil {
				return err
			}
			theirs = append(theirs, ms)
		}
	}
	row := measure.Row{
		Name: "snapshot", Unit: "ms", Value: measure.Median(mine), Rounds: b.rounds, CPUPerOp: measure.Number(measure.Median(cpus)),
		Note: fmt.Sprintf("`berth run --no-wait` in a folder of %d unchanged files, the whole command; CPU is the command's", files),
	}
	if gitErr != nil {
		row.Absent("git status", gitErr.Error())
	} else {
		row.Against("git status", "", mine, theirs, false)
		row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 1 / 1.5})
	}
	return b.write(row)
}
