//go:build linux && engines

package attached_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/driver/slurm/slurmtest"
)

// TestSlurmrestdStory attaches a cluster whose commands the server does not have. A token expires,
// and the job that waits goes on with the next one; a job of two nodes runs, and one that is
// canceled ends in its own way.
func TestSlurmrestdStory(t *testing.T) {
	c := slurmtest.Start(t, 2, 4, slurmtest.Rest)
	address := c.Slurmrestd(t)
	short, long := c.Token(t, 5), c.Token(t, 3600)
	home := world.Home(t)
	write(t, filepath.Join(home, "berth.yaml"), "allow:\n  hosts: ["+strings.TrimPrefix(address, "http://")+"]\n")
	t.Setenv("SLURM_CONF", "/nowhere")
	s := world.StartIn(t, home)
	token := filepath.Join(t.TempDir(), "token")
	attach := func(text string) {
		t.Helper()
		write(t, token, "SLURM_JWT="+text+"\n")
		run(t, s, "compute", "attach", "-n", "site", "--type", "slurm", "--rest", address, "--user", "root", "--token-file", token, "--partition", "main")
	}
	attach(short)
	until(t, s, "has expired", "explain", "site")
	run(t, s, "run", "--no-wait", "--name", "waits", "--on", "site", "--", "sh", "-c", "echo went on")
	attach(long)
	until(t, s, "went on", "logs", "waits")
	until(t, s, "Completed", "job", "show", "-n", "waits", "-o", "json")
	if out, _ := try(s, "compute", "show", "-n", "site", "-o", "json"); strings.Contains(out, long) || !strings.Contains(out, address) {
		t.Errorf("shown: %s", out)
	}
	both := write(t, filepath.Join(t.TempDir(), "both.yml"), "type: command\ncompute: azureml:site\ncommand: echo done\nenvironment: {image: none}\n"+
		"properties: {berth.environment: host}\nresources: {instance_count: 2}\n")
	run(t, s, "job", "create", "-f", both, "-n", "both")
	until(t, s, "Completed", "job", "show", "-n", "both", "-o", "json")

	mark := filepath.Join(t.TempDir(), "mark")
	run(t, s, "run", "--no-wait", "--name", "stopped", "--on", "site", "--", "sh", "-c", "trap 'echo by itself > "+mark+"; exit 0' TERM; echo begun; while :; do sleep 0.1; done")
	until(t, s, "begun", "logs", "stopped")
	run(t, s, "job", "cancel", "-n", "stopped")
	until(t, s, "Canceled", "job", "show", "-n", "stopped", "-o", "json")
	if b, err := os.ReadFile(mark); err != nil || string(b) != "by itself\n" {
		t.Errorf("the job that was canceled: %q, %v", b, err)
	}
	run(t, s, "compute", "detach", "-n", "site", "--yes")
}
