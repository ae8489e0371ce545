// Package batch scores files with batch endpoints, as people do with Azure's clients and with ours.
package batch_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestExample runs examples/batch.
func TestExample(t *testing.T) {
	s := world.Start(t)
	cmd := s.Command()
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "../../examples/batch/run.sh", t.TempDir()}
	cmd.Env = append(cmd.Env, "BERTH="+s.Bin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := ""
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		want += `log` + n + `.txt,8,"Ship ` + n + `, ""at sea"""` + "\n"
	}
	if !strings.HasSuffix(string(out), want) {
		t.Errorf("the result is not\n%s\n%s", want, out)
	}
}
