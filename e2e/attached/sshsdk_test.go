//go:build linux

package attached_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestSSHSDK attaches a machine that OpenSSH leads to with Azure's own client, and runs jobs there.
func TestSSHSDK(t *testing.T) {
	python := world.Python(t, "azure-ai-ml==1.35.2", "azure-identity==1.27.0", "six==1.17.0")
	s := world.Start(t)
	o := startOpenSSH(t)
	cmd := exec.Command(python, "ssh.py", filepath.Join(t.TempDir(), "work"), o.user, o.port, o.key, o.home)
	cmd.Env = s.Environ()
	out, err := cmd.CombinedOutput()
	for _, line := range []string{"seen: python\n", "seen: yaml\n", "seen: again\n", "seen: detach\n"} {
		if err != nil || !strings.Contains(string(out), line) {
			t.Fatalf("%q: %v\n%s", line, err, out)
		}
	}
}
