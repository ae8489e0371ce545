package runner_test

import (
	"os"
	"testing"

	"github.com/berthml/berth/internal/runner"
)

// TestOfTaskOfAnotherNamespace: a process that this machine's list does not have is not taken for
// one that may be let in. The kernel gives those of other PID namespaces, such as a container's
// beside the server's, the number 0.
func TestOfTaskOfAnotherNamespace(t *testing.T) {
	home := t.TempDir()
	if !runner.OfTask(0, home) {
		t.Error("a process of another namespace is taken for the owner")
	}
	if runner.OfTask(os.Getpid(), home) {
		t.Error("the owner is taken for a task")
	}
}
