//go:build linux && engines

package attached_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
)

// TestSlurmManaged has a managed cluster whose nodes a Slurm site makes: they come when a job needs
// them and go when they are idle, survive a kill of the server, and a job whose node is taken away
// starts again on another.
func TestSlurmManaged(t *testing.T) {
	c := slurmtest.Start(t, 2, 2, slurmtest.Cloud)
	s := slurmServer(t, c)
	dir := t.TempDir()
	run(t, s, "compute", "attach", "-f", write(t, filepath.Join(dir, "site.yml"), `name: site
type: slurm
partition: main
sizes:
  Standard_DS1_v2: {partition: cloud}
`))
	until(t, s, "has been connected since", "explain", "site")
	create := func(name, size, more string) (string, error) {
		return try(s, "compute", "create", "-f", write(t, filepath.Join(dir, name+".yml"), "name: "+name+"\ntype: amlcompute\nsize: "+size+
			"\nmax_instances: 2\nidle_time_before_scale_down: 2\n"+more))
	}
	for tags, want := range map[string]string{"{berth.provider: nowhere}": "there is no compute", "{berth.provider: local}": "cannot make nodes"} {
		if out, err := create("wrong", "Standard_DS1_v2", "tags: "+tags+"\n"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s", tags, err, out)
		}
	}
	for name, size := range map[string]string{"fixed": "Standard_D1_v2", "power": "Standard_DS1_v2"} {
		if out, err := create(name, size, "tags: {berth.provider: site}\n"); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	if out, err := try(s, "compute", "update", "-n", "fixed", "--set", "tags.berth\\.provider=local"); err == nil {
		t.Logf("update: %s", out)
	}
	if out, err := try(s, "compute", "detach", "-n", "site", "--yes"); err == nil || !strings.Contains(out, "makes the nodes of cluster") {
		t.Errorf("detached: %v, %s", err, out)
	}

	// Nodes that Slurm has to power up first: this takes a while, so that it runs beside the rest.
	run(t, s, "run", "--no-wait", "--name", "up", "--on", "power", "--", "echo", "powered")
	until(t, s, "CONFIGURING", "compute", "list-nodes", "-n", "power", "-o", "json")

	gate := filepath.Join(t.TempDir(), "gate")
	run(t, s, "job", "create", "-f", job(t, gate, 0), "-n", "first", "--set", "compute=azureml:fixed")
	until(t, s, "some words", "logs", "first")
	if out := run(t, s, "compute", "list-nodes", "-n", "fixed", "-o", "json"); !strings.Contains(out, "running") {
		t.Errorf("nodes: %s", out)
	}
	until(t, s, "Running", "job", "show", "-n", "first", "-o", "json")
	syscall.Kill(serverPID(t, s), syscall.SIGKILL)
	run(t, s, "up")
	write(t, gate, "")
	until(t, s, "Completed", "job", "show", "-n", "first", "-o", "json")
	if out := run(t, s, "logs", "first"); out != "begin\nsome words\nend\n" {
		t.Errorf("log %q", out)
	}

	gate = filepath.Join(t.TempDir(), "gate")
	run(t, s, "job", "create", "-f", job(t, gate, 0), "-n", "second", "--set", "compute=azureml:fixed")
	until(t, s, "some words", "logs", "second")
	jobs := func() string {
		out, err := exec.Command("squeue", "--noheader", "--states=running", "--partition=main", "--format=%i").CombinedOutput()
		if err != nil {
			t.Fatalf("squeue: %v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	was := jobs()
	if was == "" || strings.Contains(was, "\n") {
		t.Fatalf("the nodes of the cluster are the jobs %q of Slurm, want one", was)
	}
	if out, err := exec.Command("scancel", was).CombinedOutput(); err != nil { // the node is taken away
		t.Fatalf("scancel: %v: %s", err, out)
	}
	until(t, s, "was canceled there", "events", "computes/fixed")
	write(t, gate, "")
	until(t, s, "Completed", "job", "show", "-n", "second", "-o", "json")
	if out := run(t, s, "explain", "second"); !strings.Contains(out, "attempt 2") {
		t.Errorf("explain: %s", out)
	}

	until(t, s, "Completed", "job", "show", "-n", "up", "-o", "json")
	if out := run(t, s, "logs", "up"); !strings.Contains(out, "powered") {
		t.Errorf("log %q", out)
	}
	for _, name := range []string{"fixed", "power"} { // nothing is left of idle nodes
		until(t, s, "[]", "compute", "list-nodes", "-n", name, "-o", "json")
		run(t, s, "compute", "delete", "-n", name, "--yes")
	}
	if out := run(t, s, "cost"); !strings.Contains(out, "USD") {
		t.Errorf("cost: %s", out)
	}
	if now := jobs(); now != "" {
		t.Errorf("jobs of Slurm are left: %s", now)
	}
	run(t, s, "compute", "detach", "-n", "site", "--yes")
}
