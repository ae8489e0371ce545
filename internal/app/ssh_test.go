package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// remoteHome is the home of an account on a machine reached over SSH. What runs there is ended with
// the test.
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

// TestSSHMachine attaches a machine over SSH as Azure's clients do, and runs a job there across a
// cut of the connection. Neither the API nor the database shows its key.
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

// TestMachinesAreTheirOwners: who attached a machine over SSH decides what it is and who runs jobs
// there.
func TestMachinesAreTheirOwners(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	users := map[string]*tracker{}
	for _, name := range []string{"ann", "bob"} {
		code, m := s.do("POST", "/tokens", map[string]any{"name": name, "role": "user"})
		if code != http.StatusCreated {
			t.Fatalf("token: %d %v", code, m)
		}
		users[name] = trackerOf(t, map[string]string{
			"MLFLOW_TRACKING_SERVER_CERT_PATH": filepath.Join(home, "tls", "ca.pem"), "MLFLOW_TRACKING_URI": s.app.URL, "MLFLOW_TRACKING_TOKEN": m["token"].(string),
		})
	}
	ann, bob := users["ann"], users["bob"]
	machine := func(tags map[string]any) map[string]any {
		return map[string]any{"location": "local", "tags": tags, "properties": map[string]any{
			"computeType": "VirtualMachine",
			"properties":  map[string]any{"address": "127.0.0.1", "sshPort": 1, "administratorAccount": map[string]any{"username": "ann", "password": "hers"}},
		}}
	}
	job := map[string]any{"properties": map[string]any{"jobType": "Command", "command": "true", "computeId": s.ws + "/computes/vm"}}
	want := func(who *tracker, status int, method, path string, body any) {
		t.Helper()
		if code, m := who.do(method, s.ws+path, body); code != status {
			t.Errorf("%s %s: %d %v, want %d", method, path, code, m, status)
		}
	}
	want(ann, http.StatusCreated, "PUT", "/computes/vm", machine(nil))
	agent := machine(nil)
	agent["properties"].(map[string]any)["properties"].(map[string]any)["agentKey"] = "SHA256:x"
	for says, do := range map[string]func(string, string, any) (int, map[string]any){"only administrators": bob.do, "ssh_agent: PATH": s.do} {
		if code, m := do("PUT", s.ws+"/computes/agent", agent); code != http.StatusForbidden || !strings.Contains(fmt.Sprint(m), says) {
			t.Errorf("a key of the server's agent: %d %v, want %q", code, m, says)
		}
	}
	for _, change := range []map[string]any{
		{"properties": map[string]any{"properties": map[string]any{"administratorAccount": map[string]any{"USERNAME": "root"}}}},
		{"properties": map[string]any{"properties": map[string]any{"administratorAccount": map[string]any{"password": ""}}}},
		{"tags": map[string]any{"berth.shared": "true"}},
	} {
		want(bob, http.StatusForbidden, "PATCH", "/computes/vm", change)
	}
	want(bob, http.StatusForbidden, "PUT", "/computes/vm", machine(nil))
	want(bob, http.StatusForbidden, "PUT", "/jobs/bobs", job)
	want(ann, http.StatusCreated, "PUT", "/jobs/hers", job)
	want(ann, http.StatusOK, "PUT", "/computes/vm", machine(map[string]any{"berth.shared": "true"}))
	want(bob, http.StatusCreated, "PUT", "/jobs/bobs", job)

	// The files of a job are changed through MLflow by its user only.
	const file = "/api/2.0/mlflow-artifacts/artifacts/0/hers/artifacts/outputs/x"
	tracking := "/mlflow/v2.0" + s.ws
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // until the job is a run
		if code, _ := ann.do("GET", tracking+mlflowAPI+"runs/get?run_id=hers", nil); code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the job is not a run")
		}
	}
	for _, c := range []struct {
		who    *tracker
		status int
	}{{bob, http.StatusForbidden}, {ann, http.StatusOK}} {
		if code, m := c.who.do("PUT", tracking+file, "text"); code != c.status {
			t.Errorf("%d %v, want %d", code, m, c.status)
		}
	}
	if code, m := bob.do("DELETE", tracking+file, nil); code != http.StatusForbidden {
		t.Errorf("bob deletes: %d %v", code, m)
	}
}
