package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// list times commands that people type all day, process start included: the list of jobs as it is
// typed and asked for all 300 jobs, `berth ps`, and `berth version`, which is the process alone.
func list(b *bench) error {
	const jobs = 300
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "list"))
	if err != nil {
		return err
	}
	defer s.Stop()
	if _, _, err := shortJobs(b, s, "job", jobs); err != nil {
		return err
	}
	var floors []float64
	for range b.size(50, 5) {
		ms, _, _, err := listed(exec.CommandContext(b.ctx, "/bin/true"))
		if err != nil {
			return err
		}
		floors = append(floors, ms)
	}
	_, haveAz := exec.LookPath("az")
	for _, v := range []struct {
		name  string
		args  []string
		more  int     // lines at least
		limit float64 // in milliseconds; 0: none
	}{
		{"list.cli", []string{"job", "list"}, 20, 6},
		{"list.cli.all", []string{"job", "list", "--max-results", fmt.Sprint(jobs)}, jobs, 0},
		{"list.ps", []string{"ps"}, 10, 6},
		{"list.version", []string{"version"}, 1, 3},
	} {
		var all, cpus, rounds, az []float64
		var server time.Duration
		lines := 0
		for range b.rounds {
			var round []float64
			before := s.Own()
			for range b.size(20, 5) {
				ms, cpu, n, err := listed(s.CLI(b.ctx, v.args...))
				if err != nil || n < v.more {
					return fmt.Errorf("berth %s: %d lines, %w", strings.Join(v.args, " "), n, err)
				}
				round, cpus, lines = append(round, ms), append(cpus, cpu), n
			}
			server += s.Own().Since(before)
			rounds, all = append(rounds, measure.Median(round)), append(all, round...)
			if haveAz == nil && v.name == "list.cli" {
				ms, err := azList(b, s)
				if err != nil {
					haveAz = err
				}
				az = append(az, ms)
			}
		}
		row := measure.Row{
			Name: v.name, Unit: "ms", Value: measure.Median(all), Rounds: b.rounds,
			CPUPerOp: measure.Number(measure.Median(cpus) + peer.Ms(server)/float64(len(all))),
			Physical: fmt.Sprintf("%.2g ms (one fork and exec)", measure.Median(floors)),
			Note: fmt.Sprintf("p50 of %d calls, %d jobs there, %d lines printed; p99 %.3g ms; CPU: %.3g ms the command, the rest the server",
				len(all), jobs, lines, measure.Quantile(all, 0.99), measure.Median(cpus)),
		}
		if v.limit > 0 {
			row.Judge(measure.Bound{Of: "value", Limit: v.limit})
		}
		if v.name == "list.cli" {
			if haveAz == nil {
				row.Against("az ml job list", "", rounds, az, false)
			} else {
				row.Absent("az ml job list", "not installed here; 3.5-4.3 s in an earlier measurement, warm, against a mock, so no ratio")
			}
		}
		if err := b.write(row); err != nil {
			return err
		}
	}
	return nil
}

// listed runs a command: its time and its CPU in milliseconds, and how many lines it printed.
func listed(cmd *exec.Cmd) (ms, cpu float64, lines int, err error) {
	t := time.Now()
	out, err := cmd.Output()
	ms = peer.Ms(time.Since(t))
	if cmd.ProcessState == nil { // it did not start
		return ms, 0, 0, err
	}
	return ms, peer.Ms(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()), bytes.Count(out, []byte("\n")), err
}

// azList times Azure's own command line against our server, where it and its ml extension are
// installed.
func azList(b *bench, s *world.Server) (float64, error) {
	script := `eval "$("$0" azure-env --export)" && exec az ml job list -o none --resource-group "$AZURE_RESOURCE_GROUP" --workspace-name "$AZUREML_WORKSPACE_NAME"`
	cmd := exec.CommandContext(b.ctx, "sh", "-c", script, s.Bin)
	cmd.Env = append(os.Environ(), "BERTH_HOME="+s.Home)
	t := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("az ml job list: %w: %.200s", err, out)
	}
	return peer.Ms(time.Since(t)), nil
}
