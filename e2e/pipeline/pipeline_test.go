// Package pipeline runs pipelines as their authors do.
package pipeline_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestExample runs examples/pipeline: commands, a pipeline component, files and folders from step
// to step.
func TestExample(t *testing.T) {
	s := world.Start(t)
	cmd := s.Command()
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "../../examples/pipeline/run.sh", t.TempDir()}
	cmd.Env = append(cmd.Env, "BERTH="+s.Bin)
	b, err := cmd.CombinedOutput()
	out := string(b)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := -1
	for _, want := range []string{ // in this order
		"prepare: begins as job ", "prepare: Completed after ", "train: begins as job ", "train: Completed after ", "judge: begins as job ",
		"the pipeline ends: all 3 steps completed", "the one of 500 steps is better", "slope 3.0 after 500 steps, loss 0.0",
	} {
		i := strings.Index(out, want)
		if i <= at {
			t.Errorf("%q is not told, or not in its place:\n%s", want, out)
		}
		at = max(at, i)
	}
}
