package protocol_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestExample runs examples/online.
func TestExample(t *testing.T) {
	s := world.Start(t)
	cmd := s.Command()
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "../../examples/online/run.sh"}
	cmd.Env = append(cmd.Env, "BERTH="+s.Bin, "CA="+filepath.Join(filepath.Dir(s.CABundle), "ca.pem"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const prices = `{"prices": [110000, 200000], "currency": `
	if !strings.Contains(string(out), prices+"\"EUR\"}\n"+prices+"\"USD\"}\n") || strings.Count(string(out), prices+`"USD"}`) != 2 || !strings.Contains(string(out), "init()") {
		t.Errorf("%s", out)
	}
}
