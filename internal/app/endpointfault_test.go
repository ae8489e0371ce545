package app_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// fails deploys what cannot serve, and checks what the deployment says of it.
func (e *endpointServer) fails(name string, properties map[string]any, want ...string) {
	e.t.Helper()
	code, m := e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/"+name, map[string]any{"location": "local", "properties": properties})
	if code != http.StatusCreated {
		e.t.Errorf("%s: %d %v", name, code, m)
		return
	}
	state, b := e.state(name)
	why, _ := b["error"].(string)
	for _, text := range want {
		if state != "Failed" || !strings.Contains(why, text) {
			e.t.Errorf("%s is %s: %q, want %q", name, state, why, text)
		}
	}
	if replicas, _ := b["replicas"].([]any); len(replicas) != 0 {
		e.t.Errorf("%s has replicas: %v", name, replicas)
	}
	if code, body, _ := e.call(`{}`, "azureml-model-deployment", name); code != http.StatusServiceUnavailable || !strings.Contains(body, "DeploymentFailed") {
		e.t.Errorf("%s answers %d %s", name, code, body)
	}
}

func scripted(codeID string, more map[string]any) map[string]any {
	p := map[string]any{"codeConfiguration": map[string]any{"codeId": codeID, "scoringScript": "score.py"}}
	for k, v := range more {
		p[k] = v
	}
	return p
}

// TestEndpointFaults: what cannot serve fails with the reason, within the time of its probes, and
// nothing of it is left; what serves answers for its own faults.
func TestEndpointFaults(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	probe := map[string]any{"initialDelay": "PT1S", "period": "PT1S", "failureThreshold": 2, "timeout": "PT1S", "successThreshold": 1}
	probes := map[string]any{"readinessProbe": probe, "livenessProbe": probe}
	e.fails("hangs", scripted(e.code("hangs", "import time\n\ndef init():\n    print('waiting for weights')\n    time.sleep(600)\n\ndef run(data):\n    return 1\n"), probes),
		"did not become ready within 3s", "waiting for weights")
	e.fails("raises", scripted(e.code("raises", "def init():\n    raise ValueError('no weights')\n\ndef run(data):\n    return 1\n"), nil), "no weights")
	e.fails("imports", scripted(e.code("imports", "import not_installed_anywhere\n"), nil), "not_installed_anywhere")
	e.fails("no-run", scripted(e.code("norun", "def init():\n    pass\n"), nil), "has no function run")
	silent := map[string]any{"model": e.model("m", ""), "properties": map[string]any{"berth.command": "exec sleep 600"}}
	for k, v := range probes {
		silent[k] = v
	}
	e.fails("silent", silent, "did not become ready within 3s")
	e.fails("ended", map[string]any{"model": e.model("m2", ""), "properties": map[string]any{"berth.command": "echo cannot serve this; exit 4"}}, "cannot serve this", "4")
	code, m := e.do("PUT", e.ws+"/environments/bad/versions/1", map[string]any{"properties": map[string]any{
		"condaFile": "dependencies:\n- pip\n- pip:\n  - /not/there-1.0-py3-none-any.whl\n", "osType": "Linux",
	}})
	if code != http.StatusCreated {
		t.Fatal(code, m)
	}
	code, m = e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/image", map[string]any{"location": "local", "properties": map[string]any{"environmentId": e.ws + "/environments/bad/versions/1"}})
	if code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(m), "berth.command") {
		t.Errorf("an image with a server of its own: %d %v", code, m)
	}
	e.fails("unbuilt", scripted(e.code("c0", echo), map[string]any{"environmentId": e.ws + "/environments/bad/versions/1"}), "there-1.0")
	e.end()
}

// TestEndpointRunFaults: a request that fails in the model is answered with what the model said,
// and the next one is answered.
func TestEndpointRunFaults(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	e.deploy("blue", e.code("c", `
import json, os, resource, signal

def init():
    pass

def run(data):
    what = json.loads(data)
    if what == "object":
        return object()
    if what == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
        return len(bytearray(4 << 30))
    if what == "killed":  # as the kernel does when memory is out
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "large":
        return "x" * 900_000
    return what
`), nil)
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	e.traffic(map[string]any{"blue": 100})
	for _, c := range []struct {
		body   string
		status int
		model  string // status of the model
	}{
		{`"object"`, http.StatusFailedDependency, "500"},
		{`"memory"`, http.StatusFailedDependency, "500"},
		{`"killed"`, http.StatusBadGateway, ""},
		{`not JSON`, http.StatusFailedDependency, "500"},
		{`"fine"`, http.StatusOK, ""},
	} {
		code, body, h := e.call(c.body)
		if code != c.status || h.Get("ms-azureml-model-error-statuscode") != c.model {
			t.Errorf("%s: %d %s %v", c.body, code, body, h)
		}
		if strings.Contains(body, "Traceback") {
			t.Errorf("%s: the caller sees %s", c.body, body)
		}
	}
	e.slowClients()
	e.end()
}

// slowClients have the only worker for no longer than it takes to answer.
func (e *endpointServer) slowClients() {
	t := e.t
	u, err := url.Parse(e.uri)
	if err != nil {
		t.Fatal(err)
	}
	open := func() net.Conn {
		c, err := tls.Dial("tcp", u.Host, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	head := "POST " + u.Path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + e.key + "\r\n"
	for range 20 { // half of a request, and an answer that nobody reads
		fmt.Fprint(open(), head+"Content-Length: 100\r\n\r\n{")
		fmt.Fprint(open(), head+"Content-Length: 7\r\n\r\n\"large\"")
	}
	for range 3000 { // connections that say nothing
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 3 {
		if code, body, _ := e.call(`"fine"`); code != http.StatusOK {
			t.Errorf("behind slow clients: %d %s", code, body)
		}
	}
	bomb := open()
	go fmt.Fprint(bomb, head+"X-Bomb: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(bomb), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of a megabyte: %d", resp.StatusCode)
	}
}
