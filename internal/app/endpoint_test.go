package app_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// echo is a scoring script that says which deployment it is of.
const echo = `
import json, os

def init():
    global name
    name = os.environ.get("WHO", "nobody")
    print("init of", name)

def run(data):
    d = json.loads(data)
    if d.get("die"):
        os._exit(9)
    if d.get("raise"):
        raise ValueError("boom")
    return {"who": name, "got": d}
`

// endpointServer is a server with an endpoint that is called e.
type endpointServer struct {
	*server
	remote *http.Client
	uri    string
	key    string
}

func startEndpoint(t *testing.T, s *server) *endpointServer {
	t.Helper()
	e := &endpointServer{server: s, remote: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	code, m := s.do("PUT", s.ws+"/onlineEndpoints/e", map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key"}})
	if code != http.StatusCreated {
		t.Fatal(code, m)
	}
	e.uri, _ = m["properties"].(map[string]any)["scoringUri"].(string)
	code, m = s.do("POST", s.ws+"/onlineEndpoints/e/listKeys", map[string]any{})
	if code != http.StatusOK {
		t.Fatal(code, m)
	}
	e.key, _ = m["primaryKey"].(string)
	return e
}

// code registers a scoring script as code.
func (e *endpointServer) code(name, script string) string {
	e.t.Helper()
	dir := e.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "score.py"), []byte(script), 0o600); err != nil {
		e.t.Fatal(err)
	}
	id := e.ws + "/codes/" + name + "/versions/1"
	code, m := e.do("PUT", id, map[string]any{"properties": map[string]any{"codeUri": "file://" + dir}})
	if code != http.StatusCreated {
		e.t.Fatal(code, m)
	}
	return id
}

// model registers a folder with the file server.py as a model.
func (e *endpointServer) model(name, server string) string {
	e.t.Helper()
	dir := filepath.Join(e.t.TempDir(), "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		e.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server.py"), []byte(server), 0o600); err != nil {
		e.t.Fatal(err)
	}
	id := e.ws + "/models/" + name + "/versions/1"
	code, m := e.do("PUT", id, map[string]any{"properties": map[string]any{"modelUri": "file://" + dir, "modelType": "custom_model"}})
	if code != http.StatusCreated {
		e.t.Fatal(code, m)
	}
	return id
}

func (e *endpointServer) deploy(name, codeID string, env map[string]any) {
	e.t.Helper()
	code, m := e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/"+name, map[string]any{
		"location": "local", "sku": map[string]any{"name": "Default", "capacity": 1},
		"properties": map[string]any{
			"endpointComputeType": "Managed", "instanceType": "Standard_DS3_v2", "environmentVariables": env,
			"codeConfiguration": map[string]any{"codeId": codeID, "scoringScript": "score.py"},
			"requestSettings":   map[string]any{"requestTimeout": "PT60S"},
		},
	})
	if code/100 != 2 {
		e.t.Fatal(code, m)
	}
}

// state waits until a deployment is made or has failed.
func (e *endpointServer) state(name string) (state string, berth map[string]any) {
	e.t.Helper()
	e.eventually("deployment "+name+" is settled", func() bool {
		_, m := e.do("GET", e.ws+"/onlineEndpoints/e/deployments/"+name, nil)
		p, _ := m["properties"].(map[string]any)
		state, _ = p["provisioningState"].(string)
		berth, _ = p["berth"].(map[string]any)
		return state == "Succeeded" || state == "Failed"
	})
	return state, berth
}

func (e *endpointServer) traffic(shares map[string]any) {
	e.t.Helper()
	code, m := e.do("PUT", e.ws+"/onlineEndpoints/e", map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key", "traffic": shares}})
	if code != http.StatusOK {
		e.t.Fatal(code, m)
	}
}

// call sends a request to the endpoint, as a client elsewhere does.
func (e *endpointServer) call(body string, headers ...string) (int, string, http.Header) {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, e.uri, bytes.NewReader([]byte(body)))
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+e.key)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := e.remote.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// who is the deployment that answers.
func (e *endpointServer) who(headers ...string) string {
	e.t.Helper()
	code, body, _ := e.call(`{}`, headers...)
	var v struct{ Who string }
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != http.StatusOK {
		e.t.Fatal(code, body, err)
	}
	return v.Who
}

// TestEndpointAnswers: a scoring script is deployed and answers, with the key only.
func TestEndpointAnswers(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	e.deploy("blue", e.code("c", echo), map[string]any{"WHO": "blue"})
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	if code, body, _ := e.call(`{}`); code != http.StatusNotFound {
		t.Errorf("without traffic: %d %s", code, body)
	}
	e.traffic(map[string]any{"blue": 100})
	code, body, h := e.call(`{"a":[1]}`)
	if code != http.StatusOK || body != `{"who": "blue", "got": {"a": [1]}}` || h.Get("azureml-model-deployment") != "blue" {
		t.Errorf("%d %s %v", code, body, h)
	}
	if code, body, h = e.call(`{"raise":true}`); code != http.StatusFailedDependency || h.Get("ms-azureml-model-error-statuscode") != "500" {
		t.Errorf("a script that raises: %d %s %v", code, body, h)
	}
	if code, body, _ = e.call(`{}`, "Authorization", "Bearer wrong"); code != http.StatusUnauthorized {
		t.Errorf("a wrong key: %d %s", code, body)
	}
	if code, body, _ = e.call(`{}`, "azureml-model-deployment", "green"); code != http.StatusNotFound || !strings.Contains(body, "green") {
		t.Errorf("a deployment that is not there: %d %s", code, body)
	}
	code, m := e.do("POST", e.ws+"/onlineEndpoints/e/deployments/blue/getLogs", map[string]any{"tail": 100})
	if content, _ := m["content"].(string); code != http.StatusOK || !strings.Contains(content, "init of blue") {
		t.Errorf("log: %d %v", code, m)
	}
	if code, m := e.do("GET", e.ws+"/jobs", nil); code != http.StatusOK || len(m["value"].([]any)) != 0 {
		t.Errorf("the job of a replica is listed: %d %v", code, m)
	}
	if code, m := e.do("DELETE", e.ws+"/onlineEndpoints/e/deployments/blue", nil); code != http.StatusConflict {
		t.Errorf("deleting a deployment with traffic: %d %v", code, m)
	}
	e.eventually("its memory is measured", func() bool {
		_, m := e.do("GET", e.ws+"/endpointMetrics", nil)
		return strings.Contains(fmt.Sprint(m), "memoryBytes:")
	})
	e.end()
}

// end deletes the endpoint, and waits until nothing of it runs.
func (e *endpointServer) end() {
	e.t.Helper()
	var jobs []string
	_, m := e.do("GET", e.ws+"/onlineEndpoints/e/deployments", nil)
	for _, d := range m["value"].([]any) {
		b, _ := d.(map[string]any)["properties"].(map[string]any)["berth"].(map[string]any)
		replicas, _ := b["replicas"].([]any)
		for _, r := range replicas {
			jobs = append(jobs, r.(map[string]any)["job"].(string))
		}
	}
	if code, m := e.do("DELETE", e.ws+"/onlineEndpoints/e", nil); code/100 != 2 {
		e.t.Fatal(code, m)
	}
	for _, job := range jobs {
		if _, status := e.wait(job); status != "Canceled" {
			e.t.Errorf("the job %s of a replica is %v", job, status)
		}
	}
}

// TestEndpointTraffic: requests are split, a header names a deployment, and one that fails to start
// leaves what was there before serving.
func TestEndpointTraffic(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	code := e.code("c", echo)
	e.deploy("blue", code, map[string]any{"WHO": "blue"})
	e.deploy("green", code, map[string]any{"WHO": "green"})
	for _, name := range []string{"blue", "green"} {
		if state, b := e.state(name); state != "Succeeded" {
			t.Fatal(state, b)
		}
	}
	e.refusesTraffic()
	e.traffic(map[string]any{"blue": 50, "green": 50})
	seen := map[string]bool{}
	e.eventually("both answer", func() bool { seen[e.who()] = true; return seen["blue"] && seen["green"] })
	for range 10 {
		if who := e.who("azureml-model-deployment", "green"); who != "green" {
			t.Fatalf("%s answers what is for green", who)
		}
	}
	e.deploy("blue", e.code("broken", "def init():\n    raise ValueError('no model here')\n\ndef run(data):\n    return 1\n"), nil)
	state, b := e.state("blue")
	if why, _ := b["error"].(string); state != "Failed" || !strings.Contains(why, "no model here") {
		t.Fatalf("a script whose init raises: %s %v", state, b)
	}
	if who := e.who("azureml-model-deployment", "blue"); who != "blue" {
		t.Errorf("%s answers", who)
	}
	e.deploy("blue", code, map[string]any{"WHO": "azure"})
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	e.eventually("the new form answers", func() bool { return e.who("azureml-model-deployment", "blue") == "azure" })
	e.end()
}

// refusesTraffic gives traffic to deployments that cannot have it.
func (e *endpointServer) refusesTraffic() {
	e.t.Helper()
	for _, c := range []struct {
		traffic, mirror map[string]any
		says            string
	}{
		{map[string]any{"ghost": 100}, nil, "names ghost, which is not a deployment of endpoint e"},
		{map[string]any{"blue": 50, "ghost": 50}, nil, "properties.traffic names ghost"},
		{map[string]any{"blue": 100}, map[string]any{"ghost": 10}, "properties.mirrorTraffic names ghost"},
		{map[string]any{"blue": 100}, map[string]any{"BLUE": 10}, "both traffic and mirrored requests"},
		{nil, map[string]any{"blue": 10, "green": 10}, "can be mirrored to one"},
		{map[string]any{"blue": 60, "green": 60}, nil, "adds up to 120"},
		{map[string]any{"blue": 100}, map[string]any{"green": 51}, "at most 50 percent"},
	} {
		code, m := e.do("PUT", e.ws+"/onlineEndpoints/e", map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key", "traffic": c.traffic, "mirrorTraffic": c.mirror}})
		if code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(m), c.says) {
			e.t.Errorf("traffic %v, mirrored %v: %d %v", c.traffic, c.mirror, code, m)
		}
	}
	e.traffic(map[string]any{"blue": 100, "ghost": 0}) // a deployment that was deleted
}

// TestEndpointReplicaDies: a replica whose process is killed is replaced, and the deployment says
// why.
func TestEndpointReplicaDies(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	e.deploy("blue", e.code("c", "import os\n\ndef init():\n    pass\n\ndef run(data):\n    return os.getppid()\n"), nil)
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	blue := []string{"azureml-model-deployment", "blue"}
	_, first, _ := e.call(`{}`, blue...)
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(first)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.eventually("another replica answers", func() bool {
		code, body, _ := e.call(`{}`, blue...)
		return code == http.StatusOK && body != first
	})
	_, b := e.state("blue")
	if why, _ := b["deathWhy"].(string); !strings.Contains(why, "SIGKILL") {
		t.Errorf("it says %q", why)
	}
	e.end()
}

// TestEndpointOutlivesServer: replicas run on while no server does, and answer through the next.
func TestEndpointOutlivesServer(t *testing.T) {
	home := shortHome(t)
	e := startEndpoint(t, start(t, home))
	e.deploy("blue", e.code("c", "import os\n\ndef init():\n    pass\n\ndef run(data):\n    return os.getpid()\n"), nil)
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	blue := []string{"azureml-model-deployment", "blue"}
	code, first, _ := e.call(`{}`, blue...)
	if code != http.StatusOK {
		t.Fatal(code, first)
	}
	e.stop()
	e.remote.CloseIdleConnections()
	e.server = start(t, home)
	if code, again, _ := e.call(`{}`, blue...); code != http.StatusOK || again != first {
		t.Errorf("%d %s after %s", code, again, first)
	}
	e.end()
}

// TestEndpointLosesNothing: while clients call, a deployment is changed again and again; every
// request is answered.
func TestEndpointLosesNothing(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	code := e.code("c", echo)
	e.deploy("blue", code, map[string]any{"WHO": "0"})
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	e.traffic(map[string]any{"blue": 100})
	var clients sync.WaitGroup
	done := make(chan struct{})
	var answered atomic.Int64
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if code, body, _ := e.call(`{}`); code != http.StatusOK {
					t.Errorf("%d %s", code, body)
					return
				}
				answered.Add(1)
			}
		})
	}
	for i := range 3 {
		name := strconv.Itoa(i + 1)
		e.deploy("blue", code, map[string]any{"WHO": name})
		if state, b := e.state("blue"); state != "Succeeded" {
			t.Error(state, b)
		}
		e.eventually("the new form answers", func() bool { return e.who() == name })
	}
	e.eventually("the old replicas are gone", func() bool {
		_, b := e.state("blue")
		replicas, _ := b["replicas"].([]any)
		return len(replicas) == 1
	})
	close(done)
	clients.Wait()
	if answered.Load() < 10 {
		t.Errorf("only %d requests were answered", answered.Load())
	}
	e.end()
}

// TestEndpointTimeout: a request that takes too long is answered with 408 and given up, so that the
// next one is answered although there is only one worker.
func TestEndpointTimeout(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	script := "import json, time\n\ndef init():\n    pass\n\ndef run(data):\n    time.sleep(json.loads(data)['s'])\n    return 'done'\n"
	code, m := e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/blue", map[string]any{"location": "local", "properties": map[string]any{
		"codeConfiguration": map[string]any{"codeId": e.code("c", script), "scoringScript": "score.py"},
		"requestSettings":   map[string]any{"requestTimeout": "PT1S", "maxQueueWait": "PT60S"},
	}})
	if code != http.StatusCreated {
		t.Fatal(code, m)
	}
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	blue := []string{"azureml-model-deployment", "blue"}
	if code, body, _ := e.call(`{"s": 600}`, blue...); code != http.StatusRequestTimeout {
		t.Errorf("%d %s", code, body)
	}
	if code, body, _ := e.call(`{"s": 0}`, blue...); code != http.StatusOK {
		t.Errorf("the next one: %d %s", code, body)
	}
	e.end()
}
