//go:build linux && engines

package attached_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
)

// slurmServer is a server whose operator lets users attach the cluster.
func slurmServer(t *testing.T, c *slurmtest.Cluster) *world.Server {
	t.Helper()
	home := world.Home(t)
	write(t, filepath.Join(home, "berth.yaml"), "slurm: trusted\n")
	t.Setenv("SLURM_CONF", c.Conf)
	return world.StartIn(t, home)
}

// TestSlurmStory runs jobs on a Slurm cluster: with code, an input and outputs, while the server,
// and the controller are killed.
func TestSlurmStory(t *testing.T) {
	c := slurmtest.Start(t, 2, 1)
	s := slurmServer(t, c)
	run(t, s, "compute", "attach", "-n", "laptop", "--type", "slurm", "--partition", "main")
	until(t, s, "has been connected since", "explain", "laptop")
	gate := filepath.Join(t.TempDir(), "gate")
	run(t, s, "job", "create", "-f", job(t, gate, 0), "-n", "first")
	run(t, s, "job", "create", "-f", job(t, gate, 3), "-n", "second")
	until(t, s, "some words", "logs", "first")
	until(t, s, "some words", "logs", "second")
	run(t, s, "job", "create", "-f", job(t, gate, 0), "-n", "third")
	until(t, s, "(Resources)", "explain", "third")

	c.Kill("slurmctld")
	syscall.Kill(serverPID(t, s), syscall.SIGKILL)
	write(t, gate, "") // they end while there is neither a server nor a controller
	run(t, s, "up")
	until(t, s, "Completed", "job", "show", "-n", "first", "-o", "json")
	until(t, s, "Failed", "job", "show", "-n", "second", "-o", "json")
	c.Controller(t)
	until(t, s, "Completed", "job", "show", "-n", "third", "-o", "json")
	for _, name := range []string{"first", "second", "third"} {
		if out, _ := try(s, "logs", name); out != "begin\nsome words\nend\n" {
			t.Errorf("log of %s: %q", name, out)
		}
	}
	to := t.TempDir()
	run(t, s, "job", "download", "-n", "first", "--all", "-p", to)
	for name, want := range map[string]string{"copy.txt": "some words\n", "kept.txt": "kept\n"} {
		if got := find(t, to, name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}

	run(t, s, "run", "--no-wait", "--name", "stopped", "--on", "laptop", "--", "sleep", "600")
	until(t, s, "Running", "job", "show", "-n", "stopped", "-o", "json")
	run(t, s, "job", "cancel", "-n", "stopped")
	until(t, s, "Canceled", "job", "show", "-n", "stopped", "-o", "json")

	run(t, s, "run", "--no-wait", "--name", "there", "--on", "laptop", "--", "sleep", "600")
	until(t, s, "Running", "job", "show", "-n", "there", "-o", "json")
	if out, err := exec.Command("scancel", "--user="+fmt.Sprint(os.Getuid())).CombinedOutput(); err != nil { // behind the server's back
		t.Fatalf("scancel: %v: %s", err, out)
	}
	if out := until(t, s, "was canceled there", "explain", "there"); !strings.Contains(out, "Slurm's job") {
		t.Errorf("explain: %s", out)
	}
	run(t, s, "compute", "detach", "-n", "laptop", "--yes")
}

// TestSlurmNeedsTheOperator: where the operator has said nothing, nobody can use the server's
// account on the cluster.
func TestSlurmNeedsTheOperator(t *testing.T) {
	s := world.Start(t)
	if out, err := try(s, "compute", "attach", "-n", "site", "--type", "slurm"); err == nil || !strings.Contains(out, "slurm: true") {
		t.Errorf("attached: %v\n%s", err, out)
	}
}
