//go:build linux

package runner_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/runner"
)

// TestNodeProcesses: a node has no more than half of the processes that the machine can have, so
// that one that starts them without end leaves the server and other nodes theirs.
func TestNodeProcesses(t *testing.T) {
	g := runner.NodeGroups(fmt.Sprint("test-pids-", os.Getpid()))
	if err := g.Check(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		g.Kill()
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	made, err := g.Make(1, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	dir := made.Pids
	if dir == "" {
		dir = made.Unified
	}
	if _, err := os.Stat(filepath.Join(dir, "pids.max")); err != nil {
		t.Skip("this machine does not count processes by group: ", err)
	}
	b, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		t.Fatal(err)
	}
	all, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	limit, err := os.ReadFile(filepath.Join(dir, "pids.max"))
	if err != nil || strings.TrimSpace(string(limit)) != strconv.Itoa(all/2) {
		t.Errorf("%s of %d: %v", limit, all, err)
	}
	argv, attr, done := made.Detach([]string{"/bin/sleep", "600"})
	defer done()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = attr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	n, err := os.ReadFile(filepath.Join(dir, "pids.current"))
	if err != nil || strings.TrimSpace(string(n)) != "1" {
		t.Errorf("%s processes: %v", n, err)
	}
}
