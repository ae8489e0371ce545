//go:build unix

package cli_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestSecondInterrupt: what waits for something that never comes, here the writer of a pipe, is
// ended by the second Ctrl-C.
func TestSecondInterrupt(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "job.yml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.Command("berth", "job", "create", "-f", pipe)
	cmd.Env = append(os.Environ(), "BERTH_HOME="+home, "BERTH_URL=https://127.0.0.1:1", "BERTH_TOKEN=x", "BERTH_WORKSPACE=w", "BERTH_RESOURCE_GROUP=g", "BERTH_SUBSCRIPTION=s")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Errorf("%v\n%s", err, out.String())
			}
			return
		case <-tick.C:
			cmd.Process.Signal(os.Interrupt) // it may just have ended
		case <-late:
			cmd.Process.Kill() // it is stuck
			t.Fatalf("Ctrl-C does not end it\n%s", out.String())
		}
	}
}
