package crash_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// scoring answers with what it was asked, and with the process to kill. Every request that it
// carries out leaves a line in MARKS.
const scoring = `
import json, os

def init():
    pass

def run(data):
    n = json.loads(data)["n"]
    if os.environ.get("MARKS"):
        fd = os.open(os.environ["MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, b"%d\n" % n)
        os.close(fd)
    return {"n": n, "pid": os.getppid(), "version": os.environ.get("VERSION", "")}
`

// endpoint is an online endpoint of a server that is killed, and its clients.
type endpoint struct {
	*chaos
	uri, key string
	code     string

	next     atomic.Int64 // number of the next request
	answered atomic.Int64
	refused  atomic.Int64 // attempts that reached no server
	broken   atomic.Int64 // connections that broke after the request had been sent
	pids     sync.Map     // of replicas that answered, by when
}

func newEndpoint(t *testing.T, mode string) *endpoint {
	t.Helper()
	e := &endpoint{chaos: newChaos(t, "")}
	doc := map[string]any{"location": "local", "properties": map[string]any{"authMode": mode}}
	var v struct {
		Properties struct{ ScoringURI string }
		PrimaryKey string
	}
	if err := json.Unmarshal(e.sure("PUT", e.ws+"/onlineEndpoints/e", doc), &v); err != nil {
		t.Fatal(err)
	}
	e.uri = v.Properties.ScoringURI
	if err := json.Unmarshal(e.sure("POST", e.ws+"/onlineEndpoints/e/listKeys", map[string]any{}), &v); err != nil {
		t.Fatal(err)
	}
	e.key = v.PrimaryKey
	dir := filepath.Join(e.root, "code")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "score.py"), []byte(scoring), 0o600); err != nil {
		t.Fatal(err)
	}
	e.code = e.ws + "/codes/c/versions/1"
	e.sure("PUT", e.code, map[string]any{"properties": map[string]any{"codeUri": "file://" + dir}})
	return e
}

// deploy writes a deployment.
func (e *endpoint) deploy(name string, count int, env, props map[string]any) {
	e.t.Helper()
	e.sure("PUT", e.ws+"/onlineEndpoints/e/deployments/"+name, map[string]any{
		"location": "local", "sku": map[string]any{"name": "Default", "capacity": count},
		"properties": map[string]any{
			"endpointComputeType": "Managed", "environmentVariables": env, "properties": props,
			"codeConfiguration": map[string]any{"codeId": e.code, "scoringScript": "score.py"},
			"requestSettings":   map[string]any{"requestTimeout": "PT60S"},
		},
	})
}

// settled waits until a deployment has all its replicas, and nothing else.
func (e *endpoint) settled(name string, count int) {
	e.t.Helper()
	e.until("deployment "+name+" is settled", 3*time.Minute, func() (bool, error) {
		code, b, err := e.do("GET", e.ws+"/onlineEndpoints/e/deployments/"+name, nil)
		var v struct {
			Properties struct {
				ProvisioningState string
				Berth             struct{ Replicas []struct{ State string } }
			}
		}
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		ready := 0
		for _, r := range v.Properties.Berth.Replicas {
			if r.State == "ready" {
				ready++
			}
		}
		return err == nil && v.Properties.ProvisioningState == "Succeeded" && ready == count && len(v.Properties.Berth.Replicas) == count, fmt.Errorf("%d %s %w", code, b, err)
	})
}

func (e *endpoint) traffic(shares map[string]any) {
	e.t.Helper()
	e.sure("PUT", e.ws+"/onlineEndpoints/e", map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key", "traffic": shares}})
}

// call sends one request, again as long as no server can be reached or the connection broke, and
// fails for every answer but the right one. allow are other statuses that are fine.
func (e *endpoint) call(client *http.Client, n int64, allow ...int) (status int) {
	body := fmt.Sprintf(`{"n": %d}`, n)
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		reached := false
		ctx := httptrace.WithClientTrace(context.WithoutCancel(e.t.Context()), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached = true }})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.uri, strings.NewReader(body))
		if err != nil {
			e.t.Error(err)
			return 0
		}
		req.Header.Set("Authorization", "Bearer "+e.key)
		resp, err := client.Do(req)
		var b []byte
		if err == nil {
			b, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		switch {
		case err != nil && !reached:
			e.refused.Add(1)
			continue
		case err != nil:
			e.broken.Add(1)
			continue
		}
		for _, ok := range allow {
			if resp.StatusCode == ok {
				return ok
			}
		}
		var v struct {
			N   int64
			Pid int
		}
		if err := json.Unmarshal(b, &v); resp.StatusCode != http.StatusOK || err != nil || v.N != n {
			e.t.Errorf("request %d: %d %s", n, resp.StatusCode, b)
			return resp.StatusCode
		}
		e.pids.Store(v.Pid, time.Now())
		e.answered.Add(1)
		return http.StatusOK
	}
	e.t.Errorf("request %d was never answered", n)
	return 0
}

// load has clients call until the returned function is called.
func (e *endpoint) load(clients int, allow ...int) (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-done:
					return
				default:
					e.call(client, e.next.Add(1), allow...)
				}
			}
		})
	}
	return func() { close(done); group.Wait() }
}

// some waits until so many more requests have been answered.
func (e *endpoint) some(n int64) {
	e.t.Helper()
	want := e.answered.Load() + n
	e.until("requests are answered", 2*time.Minute, func() (bool, error) { return e.answered.Load() >= want, nil })
}

// replica is the process of the replica that answered last.
func (e *endpoint) replica() (pid int) {
	var last time.Time
	e.pids.Range(func(k, v any) bool {
		if at, ok := v.(time.Time); ok && at.After(last) {
			last = at
			pid, _ = k.(int)
		}
		return true
	})
	return pid
}

// TestEndpointUnderFire: while clients call, traffic is flipped, deployments are changed, replicas
// and nodes are killed, and the server is stopped and killed. Every request is answered, and with
// its own answer; only those under way when the server itself is killed have to be sent again.
func TestEndpointUnderFire(t *testing.T) {
	e := newEndpoint(t, "Key")
	e.cluster("nodes", map[string]any{"scaleSettings": map[string]any{"minNodeCount": 1, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": "PT120S"}})
	idempotent := map[string]any{"berth.idempotent": "true"}
	e.deploy("blue", 2, nil, idempotent)
	e.deploy("green", 1, nil, map[string]any{"berth.idempotent": "true", "berth.compute": "nodes"})
	e.settled("blue", 2)
	e.settled("green", 1)
	e.traffic(map[string]any{"blue": 100})
	const clients = 4
	stop := e.load(clients)
	e.some(50)
	for range 6 {
		e.traffic(map[string]any{"green": 100})
		e.some(10)
		e.traffic(map[string]any{"blue": 50, "green": 50})
		e.some(10)
		e.traffic(map[string]any{"blue": 100})
		e.some(10)
	}
	for i := range 2 {
		e.deploy("blue", 2, map[string]any{"VERSION": strconv.Itoa(i + 1)}, idempotent)
		e.settled("blue", 2)
	}
	for range 2 {
		e.signal(syscall.SIGKILL, e.replica())
		e.some(20)
	}
	e.settled("blue", 2)
	e.traffic(map[string]any{"green": 100})
	e.some(20)
	e.loseNode()
	e.some(20)
	e.traffic(map[string]any{"blue": 50, "green": 50})
	if n := e.broken.Load(); n != 0 {
		t.Errorf("%d connections broke although the server ran all the time", n)
	}
	e.restart(syscall.SIGTERM)
	e.some(50)
	if n := e.broken.Load(); n != 0 {
		t.Errorf("%d connections broke while the server stopped in an orderly way", n)
	}
	const kills = 2
	for range kills {
		e.restart(syscall.SIGKILL)
		e.some(50)
	}
	e.signal(syscall.SIGKILL, e.replica(), e.server()) // both at once
	e.some(50)
	stop()
	if n := e.broken.Load(); n > clients*(kills+1) {
		t.Errorf("%d connections broke, and %d requests were under way when the server was killed", n, clients*(kills+1))
	}
	t.Logf("%d answered, %d attempts found no server, %d connections broke", e.answered.Load(), e.refused.Load(), e.broken.Load())
	e.sure("DELETE", e.ws+"/onlineEndpoints/e", nil)
}

// restart ends the server, which is then started again, and waits for the next.
func (e *endpoint) restart(s syscall.Signal) {
	e.t.Helper()
	old := e.server()
	e.signal(s, old)
	e.until("another server", time.Minute, func() (bool, error) {
		if e.server() == old {
			return false, errors.New("the old one runs still")
		}
		code, _, err := e.do("GET", "/readyz", nil)
		return err == nil && code == http.StatusOK, err
	})
}

// loseNode kills all processes of a node, its replica included.
func (e *endpoint) loseNode() {
	pid := e.replica()
	pids := []int{pid}
	for _, h := range e.hosts() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h))
		if err == nil && bytes.Contains(line, []byte("/nodes/")) {
			pids = append(pids, h)
		}
	}
	if len(pids) < 2 {
		e.t.Error("there is no process of a node")
	}
	e.signal(syscall.SIGKILL, pids...)
}

// TestEndpointNotTwice: a request that a worker may have begun is not sent to another, unless the
// deployment says that it may: the client is told that its fate is not known.
func TestEndpointNotTwice(t *testing.T) {
	e := newEndpoint(t, "Key")
	marks := filepath.Join(e.root, "scored")
	e.deploy("blue", 2, map[string]any{"MARKS": marks}, nil)
	e.settled("blue", 2)
	e.traffic(map[string]any{"blue": 100})
	stop := e.load(4, http.StatusBadGateway)
	e.some(20)
	for range 5 {
		e.signal(syscall.SIGKILL, e.replica())
		e.some(20)
	}
	stop()
	b, err := os.ReadFile(marks)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if seen[line] {
			t.Errorf("request %s was carried out twice", line)
		}
		seen[line] = true
	}
	if e.broken.Load() != 0 || int64(len(seen)) < e.answered.Load() {
		t.Errorf("%d broken, %d answered, %d carried out", e.broken.Load(), e.answered.Load(), len(seen))
	}
	e.sure("DELETE", e.ws+"/onlineEndpoints/e", nil)
}
