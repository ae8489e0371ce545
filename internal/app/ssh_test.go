package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/internal/driver/ssh/sshtest"
	"github.com/berthml/berth/internal/runner/host"
)

// remoteHome is the home of an account on a machine reached over SSH. What runs there is ended with the test.
func remoteHome(t *testing.T) string {
	t.Helper()
	home := shortHome(t)
	t.Cleanup(func() {
		locks, _ := filepath.Glob(filepath.Join(home, ".berth/remote/*/lock"))
		for _, lock := range locks {
			var v struct{ PID int }
			if b, err := os.ReadFile(lock); err == nil && json.Unmarshal(b, &v) == nil && v.PID > 1 {
				_ = syscall.Kill(v.PID, syscall.SIGKILL)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			if err := host.Shutdown(ctx, filepath.Join(filepath.Dir(lock), "host")); err != nil {
				t.Error(err)
			}
			cancel()
		}
	})
	return home
}

// TestSSHMachine attaches a machine over SSH as Azure's clients do, and runs a job there across a cut of the connection. Neither the
// API nor the database shows its key.
func TestSSHMachine(t *testing.T) {
	signer, key := sshtest.NewKey(t)
	sshd := sshtest.Start(t, remoteHome(t), signer.PublicKey())
	home := shortHome(t)
	s := start(t, home)
	address, port := sshd.HostPort()
	code, m := s.do("PUT", s.ws+"/computes/vm", map[string]any{"location": "local", "properties": map[string]any{
		"computeType": "VirtualMachine", "resourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm1",
		"properties": map[string]any{"address": address, "sshPort": json.Number(port), "administratorAccount": map[string]any{"username": "me", "privateKeyData": key}},
	}})
	if code != http.StatusCreated {
		t.Fatalf("attach: %d %v", code, m)
	}
	gate := filepath.Join(sshd.Home, "gate")
	code, m = s.do("PUT", s.ws+"/jobs/there", map[string]any{"properties": map[string]any{
		"jobType": "Command", "computeId": s.ws + "/computes/vm",
		"command": "echo home is $HOME; touch " + gate + ".running; while ! test -e " + gate + "; do sleep 0.05; done; echo two",
	}})
	if code != http.StatusCreated {
		t.Fatalf("submit: %d %v", code, m)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(gate + ".running"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			_, m := s.do("GET", s.ws+"/computes/vm", nil)
			t.Fatalf("the job does not start: %v", m)
		}
	}
	sshd.Cut()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log, status := s.wait("there")
	if status != "Completed" || !strings.Contains(log, "home is "+sshd.Home) || !strings.Contains(log, "two") {
		t.Errorf("%v, log %q", status, log)
	}
	_, m = s.do("GET", s.ws+"/computes/vm", nil)
	if shown := mustJSON(t, m); strings.Contains(shown, "PRIVATE KEY") || !strings.Contains(shown, "ssh-ed25519") {
		t.Errorf("shown: %s", shown)
	}
	for _, pattern := range []string{"berth.db*", "computes/*/*"} {
		files, _ := filepath.Glob(filepath.Join(home, pattern))
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("PRIVATE KEY")) {
				t.Errorf("the key is in %s", f)
			}
		}
	}
	if code, m := s.do("DELETE", s.ws+"/computes/vm?underlyingResourceAction=Detach", nil); code != http.StatusAccepted && code != http.StatusOK && code != http.StatusNoContent {
		t.Errorf("detach: %d %v", code, m)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if code, _ := s.do("GET", s.ws+"/computes/vm", nil); code == http.StatusNotFound {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the compute is not detached")
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
