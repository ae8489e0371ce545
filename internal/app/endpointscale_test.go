package app_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
)

// deployScaled deploys a script with properties that say how it scales.
func (e *endpointServer) deployScaled(name, codeID string, count int, scale, more map[string]any) {
	e.t.Helper()
	props := map[string]any{
		"endpointComputeType": "Managed", "properties": scale, "codeConfiguration": map[string]any{"codeId": codeID, "scoringScript": "score.py"},
		"requestSettings": map[string]any{"requestTimeout": "PT60S"},
	}
	maps.Copy(props, more)
	code, m := e.do("PUT", e.ws+"/onlineEndpoints/e/deployments/"+name, map[string]any{
		"location": "local", "sku": map[string]any{"name": "Default", "capacity": count}, "properties": props,
	})
	if code/100 != 2 {
		e.t.Fatal(code, m)
	}
}

const pid = "import os\n\ndef init():\n    pass\n\ndef run(data):\n    return os.getpid()\n"

// TestEndpointToZero: replicas stop when nobody asks, requests that then come wait in order until
// one has started, and the explanation says why.
func TestEndpointToZero(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	e.deployScaled("blue", e.code("c", pid), 1, map[string]any{"berth.idle": "200ms"}, nil)
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	gone := func() bool {
		_, b := e.state("blue")
		replicas, _ := b["replicas"].([]any)
		return len(replicas) == 0
	}
	e.eventually("no replica is left", gone)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			if code, body, _ := e.call(`{}`, "azureml-model-deployment", "blue"); code != http.StatusOK {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	group.Wait()
	e.eventually("none is left again", gone)
	_, m := e.do("POST", e.ws+"/onlineEndpoints/e/explain", map[string]any{})
	text := fmt.Sprint(m)
	if !strings.Contains(text, "no request came for 200ms") || !strings.Contains(text, "wanted:0") {
		t.Errorf("it says %s", text)
	}
	e.end()
}

// TestEndpointFromNothing: a deployment may be made without a replica, and the first request starts
// one. One that is stopped says so.
func TestEndpointFromNothing(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	code := e.code("c", pid)
	e.deployScaled("lazy", code, 0, map[string]any{"berth.min": "0", "berth.max": "1"}, nil)
	state, b := e.state("lazy")
	if replicas, _ := b["replicas"].([]any); state != "Succeeded" || len(replicas) != 0 {
		t.Fatal(state, b)
	}
	if code, body, _ := e.call(`{}`, "azureml-model-deployment", "lazy"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	e.deployScaled("off", code, 0, nil, nil)
	if state, b := e.state("off"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	if code, body, _ := e.call(`{}`, "azureml-model-deployment", "off"); code != http.StatusServiceUnavailable || !strings.Contains(body, "instance_count is 0") {
		t.Errorf("%d %s", code, body)
	}
	e.end()
}

// TestEndpointRests: workers that rest, frozen or gone but for the fork server, answer the next
// request, and none of several at once is lost.
func TestEndpointRests(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	code := e.code("c", pid)
	e.deployScaled("blue", code, 1, map[string]any{"berth.freeze": "10ms", "berth.fork": "1h"}, nil)
	e.deployScaled("green", code, 1, map[string]any{"berth.freeze": "10ms", "berth.fork": "20ms"}, nil)
	for _, name := range []string{"blue", "green"} {
		if state, b := e.state(name); state != "Succeeded" {
			t.Fatal(state, b)
		}
	}
	blue, green := []string{"azureml-model-deployment", "blue"}, []string{"azureml-model-deployment", "green"}
	_, first, _ := e.call(`{}`, blue...)
	e.eventually("it is frozen", func() bool { return processState(first) == "T" })
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if code, body, _ := e.call(`{}`, blue...); code != http.StatusOK || body != first {
				t.Errorf("frozen: %d %s after %s", code, body, first)
			}
		})
	}
	group.Wait()
	_, first, _ = e.call(`{}`, green...)
	e.eventually("its process has ended", func() bool { return processState(first) == "" })
	if code, body, _ := e.call(`{}`, green...); code != http.StatusOK || body == first {
		t.Errorf("from the fork server: %d %s after %s", code, body, first)
	}
	_, m := e.do("POST", e.ws+"/onlineEndpoints/e/explain", map[string]any{})
	if text := fmt.Sprint(m); !strings.Contains(text, "fork and import") || !strings.Contains(text, "init()") {
		t.Errorf("it says %s", text)
	}
	e.end()
}

// TestEndpointScalesOut: requests that wait bring more replicas, up to the most.
func TestEndpointScalesOut(t *testing.T) {
	e := startEndpoint(t, start(t, shortHome(t)))
	script := "import json, os, time\n\ndef init():\n    pass\n\ndef run(data):\n    time.sleep(0.2)\n    return os.getpid()\n"
	scale := map[string]any{"scaleType": "TargetUtilization", "minInstances": 1, "maxInstances": 2, "targetUtilizationPercentage": 70, "pollingInterval": "PT1S"}
	e.deployScaled("blue", e.code("c", script), 1, nil, map[string]any{"scaleSettings": scale})
	if state, b := e.state("blue"); state != "Succeeded" {
		t.Fatal(state, b)
	}
	done := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if code, body, _ := e.call(`{}`, "azureml-model-deployment", "blue"); code != http.StatusOK {
					t.Errorf("%d %s", code, body)
					return
				}
			}
		})
	}
	e.eventually("there are two replicas", func() bool {
		_, b := e.state("blue")
		replicas, _ := b["replicas"].([]any)
		ready := 0
		for _, r := range replicas {
			if r.(map[string]any)["state"] == "ready" {
				ready++
			}
		}
		return ready == 2
	})
	close(done)
	group.Wait()
	e.end()
}

// processState is the letter that Linux has for the state of a process; "" if there is none.
func processState(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}
