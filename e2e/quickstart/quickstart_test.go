// Package quickstart runs what the README promises, as a newcomer would.
package quickstart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

func TestQuickstart(t *testing.T) {
	home := world.Home(t)
	t.Cleanup(func() { os.RemoveAll(home) })
	script, err := filepath.Abs("../../examples/quickstart.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "BERTH="+world.Binary(t), "BERTH_HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "\x1b") {
		t.Errorf("there are terminal codes in a pipe:\n%q", out)
	}
	for _, want := range []string{
		"hello from", // the bare command ran
		"round 5/5",  // the log was streamed
		"kept the model: accuracy 0.9",
		"staging", "environment", "first output", // the waterfall
		"model.joblib",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the quickstart does not show %q:\n%s", want, out)
		}
	}
	if left, err := exec.Command("pgrep", "-f", home).Output(); err == nil {
		t.Errorf("processes were left behind: %s", left)
	}
}
