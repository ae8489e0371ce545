//go:build !cgo

package fence_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/internal/fence"
)

const capNetBind = 10

// TestDropAmbient: a server that may listen on low ports starts programs that may not.
func TestDropAmbient(t *testing.T) {
	if os.Getenv("BERTH_TEST_AMBIENT") != "" {
		if err := fence.DropAmbient(); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("grep", "-E", "^Cap(Eff|Amb):", "/proc/self/status").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.HasSuffix(strings.TrimSpace(line), "0000000000000000") {
				t.Errorf("a program has %s", line)
			}
		}
		l, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root can give capabilities away")
	}
	dir := t.TempDir()
	for d := dir; len(d) > 1 && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run", "^TestDropAmbient$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "BERTH_TEST_AMBIENT=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: []uintptr{capNetBind}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestDropAmbient") {
		t.Errorf("%v\n%s", err, out)
	}
}
