//go:build linux

package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/runner"
)

// TestVanishedNodes deletes the directories of nodes: of an idle one, of one whose command runs,
// and all of them while the server is stopped, as after a restored backup. Nothing waits for them,
// and nothing fails because of them but the command that ran.
func TestVanishedNodes(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.cluster("cpu", "--size", "Standard_DS1_v2", "--min-instances", "1", "--max-instances", "1")
	idle := func() (name string) {
		s.wait("a node is idle", func() bool {
			out, _ := s.try("compute", "list-nodes", "-n", "cpu", "--query", "[?node_state=='idle'].node_id", "-o", "tsv")
			name = strings.TrimSpace(out)
			return name != "" && !strings.Contains(name, "\n")
		})
		return name
	}
	remove := func(path string) {
		t.Helper()
		for { // its host may be making something there
			if err := os.RemoveAll(path); err == nil {
				return
			}
		}
	}
	run := func(name, command string) {
		t.Helper()
		s.run("run", "--no-wait", "--no-code", "--name", name, "--on", "cpu", "--", command)
	}

	first := idle()
	remove(filepath.Join(s.s.Home, "nodes", first))
	run("a", "true")
	s.wait("a job completes on another node", func() bool { return s.status("a") == "Completed" })
	if events := s.run("events", "computes/cpu"); !strings.Contains(events, "node "+first+" is gone: its machine no longer has it") {
		t.Errorf("events do not say that node %s is gone:\n%s", first, events)
	}

	second := idle()
	run("b", "sleep 600")
	s.wait("a job runs", func() bool { return s.status("b") == "Running" })
	remove(filepath.Join(s.s.Home, "nodes", second))
	s.wait("a job whose node is gone fails", func() bool { return s.status("b") == "Failed" })
	if r := s.reason("b"); !strings.Contains(r, "node "+second+" is gone: its machine no longer has it while the command ran") {
		t.Errorf("the reason is %q", r)
	}
	run("c", "true")
	s.wait("the next job completes", func() bool { return s.status("c") == "Completed" })

	idle()
	s.run("down")
	remove(filepath.Join(s.s.Home, "nodes"))
	remove(filepath.Join(s.s.Home, "host"))
	s.run("up")
	run("d", "true")
	s.wait("a job completes after nodes were not restored", func() bool { return s.status("d") == "Completed" })
	s.run("run", "--no-code", "--", "true")
	s.run("compute", "delete", "-n", "cpu", "-y")
}

// TestDownAfterKill kills the server and asks for its end afterwards: runner hosts without tasks
// end, and one whose command runs stays with it.
func TestDownAfterKill(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.cluster("cpu", "--size", "Standard_DS1_v2", "--min-instances", "1", "--max-instances", "1")
	s.run("run", "--no-code", "--on", "cpu", "--", "true")
	s.run("run", "--no-code", "--", "true")
	node := s.nodes("cpu")[0]
	hosts := func(dir string) int {
		return len(runner.Belonging(filepath.Join(s.s.Home, dir))[filepath.Join(s.s.Home, dir)])
	}
	if hosts("host") == 0 || hosts("nodes/"+node) == 0 {
		t.Fatal("there are no hosts to end")
	}
	s.killServer()
	s.run("down")
	if n, m := hosts("host"), hosts("nodes/"+node); n != 0 || m != 0 {
		t.Errorf("%d processes of the runner host and %d of the node are left", n, m)
	}
	s.run("up")
	s.run("run", "--no-wait", "--no-code", "--name", "j", "--", "sleep 600")
	s.wait("the job runs", func() bool { return s.status("j") == "Running" })
	s.killServer()
	s.run("down")
	if hosts("host") < 3 {
		t.Error("a command that ran, or its runner host, is gone")
	}
	s.run("up")
	s.run("job", "cancel", "-n", "j")
	s.wait("the job is canceled", func() bool { return s.status("j") == "Canceled" })
	s.run("compute", "delete", "-n", "cpu", "-y")
}
