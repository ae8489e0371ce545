package app_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/internal/driver/ssh/sshtest"
)

// TestSSHReplica: replicas run on a machine that is attached over SSH, and are reached through its
// connection: also after that was cut, and after the replica was killed.
func TestSSHReplica(t *testing.T) {
	signer, key := sshtest.NewKey(t)
	sshd := sshtest.Start(t, remoteHome(t), signer.PublicKey())
	e := startEndpoint(t, start(t, shortHome(t)))
	address, port := sshd.HostPort()
	code, m := e.do("PUT", e.ws+"/computes/vm", map[string]any{"location": "local", "properties": map[string]any{
		"computeType": "VirtualMachine", "resourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm1",
		"properties": map[string]any{"address": address, "sshPort": json.Number(port), "administratorAccount": map[string]any{"username": "me", "privateKeyData": key}},
	}})
	if code != http.StatusCreated {
		t.Fatalf("attach: %d %v", code, m)
	}
	script := "import os\n\ndef init():\n    pass\n\ndef run(data):\n    return [os.environ['HOME'], os.getppid(), len(data)]\n"
	deployment := scripted(e.code("c", script), map[string]any{"properties": map[string]any{"berth.compute": "vm"}, "requestSettings": map[string]any{"requestTimeout": "PT30S"}})
	e.eventually("the machine is connected", func() bool {
		code, m = e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/blue", map[string]any{"location": "local", "properties": deployment})
		return code != http.StatusServiceUnavailable
	})
	if code != http.StatusCreated {
		t.Fatal(code, m)
	}
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	e.traffic(map[string]any{"blue": 100})
	answer := func(body string) (home string, pid int) {
		t.Helper()
		code, text, _ := e.call(body)
		var v []any
		if err := json.Unmarshal([]byte(text), &v); err != nil || code != http.StatusOK || len(v) != 3 || v[2] != float64(len(body)) {
			t.Fatalf("%d %s", code, text)
		}
		return v[0].(string), int(v[1].(float64))
	}
	home, first := answer(`{}`)
	if home != sshd.Home {
		t.Errorf("it runs in %s, not on the machine (%s)", home, sshd.Home)
	}
	answer(`"` + strings.Repeat("x", 3<<20) + `"`) // streamed
	sshd.Cut()                                     // a request that is sent before the server has noticed may break
	e.eventually("it answers again", func() bool { code, _, _ := e.call(`{}`); return code == http.StatusOK })
	if _, again := answer(`{}`); again != first {
		t.Errorf("another replica answers after the connection was cut: %d, %d", first, again)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.eventually("another replica answers", func() bool {
		code, text, _ := e.call(`{}`)
		return code == http.StatusOK && !strings.Contains(text, strconv.Itoa(first))
	})
	e.end()
}
