package runner

import (
	"os/exec"
	"testing"
)

// TestBornSince starts processes at any time of the clock's tick: what is told without asking /proc
// is what /proc says.
func TestBornSince(t *testing.T) {
	same := 0
	for range 100 {
		before := clockTicks()
		cmd := exec.Command("/bin/sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		got, after := startTimeSince(before, cmd.Process.Pid), clockTicks()
		want, _, ok := StartTime(cmd.Process.Pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if !ok || got != want {
			t.Fatalf("it began at %d, not %d", want, got)
		}
		if before == after {
			same++
		}
	}
	if same == 0 {
		t.Skip("the machine is too slow: no process began within a tick")
	}
}
