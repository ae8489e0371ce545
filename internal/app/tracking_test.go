package app_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tracker calls a tracking server over TLS, with a token.
type tracker struct {
	t          *testing.T
	uri, token string
	http       *http.Client
}

func (k *tracker) do(method, path string, body any) (int, map[string]any) {
	k.t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			k.t.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(k.t.Context(), method, k.uri+path, r)
	if err != nil {
		k.t.Fatal(err)
	}
	if k.token != "" {
		req.Header.Set("Authorization", "Bearer "+k.token)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := k.http.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	out := map[string]any{}
	if json.Unmarshal(b, &out) != nil {
		out["raw"] = string(b)
	}
	return resp.StatusCode, out
}

// at walks down an answer.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// toldEnv waits for a job to write its environment to a file.
func (s *server) toldEnv(path string) map[string]string {
	s.t.Helper()
	env := map[string]string{}
	for deadline := time.Now().Add(2 * time.Minute); len(env) == 0; {
		b, err := os.ReadFile(path)
		if err != nil && time.Now().After(deadline) {
			s.t.Fatal("the job does not start")
		}
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for line := range strings.Lines(string(b)) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			env[k] = v
		}
	}
	return env
}

// trackerOf calls as a job does that was told env.
func trackerOf(t *testing.T, env map[string]string) *tracker {
	t.Helper()
	ca, err := os.ReadFile(env["MLFLOW_TRACKING_SERVER_CERT_PATH"])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(client.CloseIdleConnections)
	return &tracker{t, env["MLFLOW_TRACKING_URI"], env["MLFLOW_TRACKING_TOKEN"], client}
}

// TestRevokedUserStopsTracking: once a user's tokens are revoked neither they nor the jobs they
// left running open the tracking server.
func TestRevokedUserStopsTracking(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	code, m := s.do("POST", "/tokens", map[string]any{"name": "bob", "role": "user"})
	if code != http.StatusCreated {
		t.Fatalf("token: %d %v", code, m)
	}
	dir := t.TempDir()
	told, goOn := filepath.Join(dir, "env"), filepath.Join(dir, "go")
	job := map[string]any{"properties": map[string]any{
		"jobType": "Command", "computeId": s.ws + "/computes/local",
		"command": "env > " + told + ".new; mv " + told + ".new " + told + "; while [ ! -e " + goOn + " ]; do sleep 0.05; done",
	}}
	defer os.WriteFile(goOn, nil, 0o600)
	bob := trackerOf(t, map[string]string{
		"MLFLOW_TRACKING_SERVER_CERT_PATH": filepath.Join(home, "tls", "ca.pem"),
		"MLFLOW_TRACKING_URI":              s.app.URL, "MLFLOW_TRACKING_TOKEN": m["token"].(string),
	})
	if code, m = bob.do("PUT", s.ws+"/jobs/bobs", job); code != http.StatusCreated {
		t.Fatalf("submit: %d %v", code, m)
	}
	k := trackerOf(t, s.toldEnv(told))
	person := &tracker{t, k.uri, bob.token, k.http}
	for who, k := range map[string]*tracker{"the job": k, "bob": person} {
		if code, m := k.do("GET", mlflowAPI+"runs/get?run_id=bobs", nil); code != http.StatusOK {
			t.Errorf("%s: %d %v", who, code, m)
		}
	}
	if code, m := s.do("DELETE", "/tokens/bob", nil); code != http.StatusNoContent {
		t.Fatalf("revoke: %d %v", code, m)
	}
	for who, k := range map[string]*tracker{"the job": k, "bob": person} {
		if code, m := k.do("GET", mlflowAPI+"runs/get?run_id=bobs", nil); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %v", who, code, m)
		}
	}
}

const mlflowAPI = "/api/2.0/mlflow/"

// TestJobWithADotTracks: a job whose name MLflow's clients would refuse as the ID of a run is told
// of none, and logs to one that it makes.
func TestJobWithADotTracks(t *testing.T) {
	s := start(t, shortHome(t))
	dir := t.TempDir()
	told, goOn := filepath.Join(dir, "env"), filepath.Join(dir, "go")
	s.submit("lr0.2", "env > "+told+".new; mv "+told+".new "+told+"; while [ ! -e "+goOn+" ]; do sleep 0.05; done")
	defer s.wait("lr0.2")
	defer os.WriteFile(goOn, nil, 0o600)
	env := s.toldEnv(told)
	if env["MLFLOW_RUN_ID"] != "" {
		t.Errorf("the job is told of run %s", env["MLFLOW_RUN_ID"])
	}
	k := trackerOf(t, env)
	_, m := k.do("GET", mlflowAPI+"experiments/get-by-name?experiment_name="+env["MLFLOW_EXPERIMENT_NAME"], nil)
	code, m := k.do("POST", mlflowAPI+"runs/create", map[string]any{"experiment_id": at(m, "experiment", "experiment_id"), "start_time": 1})
	if code != http.StatusOK || !strings.Contains(fmt.Sprint(at(m, "run", "data", "tags")), "berth.job") {
		t.Errorf("%d %v", code, m)
	}
}

// TestJobTracks: a job is told where to log, its token opens its own run and what it makes and
// nothing else, and until its end only; jobs that never log are runs too, and all have the status
// of their job.
func TestJobTracks(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	dir := t.TempDir()
	told, goOn := filepath.Join(dir, "env"), filepath.Join(dir, "go")
	s.submit("silent", "true")
	s.wait("silent")
	code, m := s.do("PUT", s.ws+"/jobs/talker", map[string]any{"properties": map[string]any{
		"jobType": "Command", "computeId": s.ws + "/computes/local", "experimentName": "exp", "displayName": "a talker",
		"command": "cat \"$MLFLOW_TRACKING_SERVER_CERT_PATH\" > " + told + ".ca; env > " + told + ".new; mv " + told + ".new " + told + "; while [ ! -e " + goOn + " ]; do sleep 0.05; done; mkdir -p outputs; echo x > outputs/x.txt",
	}})
	if code != http.StatusCreated {
		t.Fatalf("submit: %d %v", code, m)
	}
	env := s.toldEnv(told)
	if env["MLFLOW_RUN_ID"] != "talker" || env["MLFLOW_EXPERIMENT_NAME"] != "exp" {
		t.Fatalf("the job is told %v", env)
	}
	// Behind the fence a job does not read the server's tls directory, so it must be told a file
	// that it can read.
	read, err := os.ReadFile(told + ".ca")
	if want, wantErr := os.ReadFile(filepath.Join(home, "tls", "ca.pem")); err != nil || wantErr != nil || !bytes.Equal(read, want) {
		t.Errorf("the job reads %q from %s (%v, %v)", read, env["MLFLOW_TRACKING_SERVER_CERT_PATH"], err, wantErr)
	}
	job := trackerOf(t, env)
	client := job.http
	admin := &tracker{t, job.uri, s.app.Token, client}

	want := func(who *tracker, status int, method, path string, body any) map[string]any {
		t.Helper()
		code, m := who.do(method, path, body)
		if code != status {
			t.Errorf("%s %s: %d %v, want %d", method, path, code, m, status)
		}
		return m
	}
	type o = map[string]any
	got := want(job, 200, "GET", mlflowAPI+"runs/get?run_id=talker", nil)
	if at(got, "run", "info", "run_name") != "a talker" || at(got, "run", "info", "status") != "RUNNING" {
		t.Errorf("the run is %v", got)
	}
	exp := at(got, "run", "info", "experiment_id")
	want(job, 200, "GET", mlflowAPI+"experiments/get-by-name?experiment_name=exp", nil)
	want(job, 200, "POST", mlflowAPI+"runs/log-metric", o{"run_id": "talker", "key": "loss", "value": 0.5, "timestamp": 1, "step": 3})
	want(job, 200, "POST", mlflowAPI+"runs/log-parameter", o{"run_id": "talker", "key": "lr", "value": "0.1"})
	child := want(job, 200, "POST", mlflowAPI+"runs/create", o{"experiment_id": exp, "start_time": 1})
	want(job, 200, "POST", mlflowAPI+"runs/set-tag", o{"run_id": at(child, "run", "info", "run_id"), "key": "k", "value": "v"})
	want(job, 200, "PUT", "/api/2.0/mlflow-artifacts/artifacts/"+exp.(string)+"/talker/artifacts/a.txt", "text")

	// What is not the job's.
	other := want(admin, 200, "POST", mlflowAPI+"runs/create", o{"experiment_id": exp, "start_time": 1})
	otherID := at(other, "run", "info", "run_id").(string)
	want(job, 403, "GET", mlflowAPI+"runs/get?run_id="+otherID, nil)
	want(job, 403, "POST", mlflowAPI+"runs/log-metric", o{"run_id": otherID, "key": "loss", "value": 0.5, "timestamp": 1})
	want(job, 403, "POST", mlflowAPI+"runs/log-batch", o{"run_id": "silent", "metrics": []o{{"key": "a", "value": 1, "timestamp": 1}}})
	want(job, 403, "POST", mlflowAPI+"runs/create", o{"experiment_id": "0", "start_time": 1})
	want(job, 403, "POST", mlflowAPI+"experiments/create", o{"name": "mine"})
	want(job, 403, "POST", mlflowAPI+"experiments/delete", o{"experiment_id": exp})
	want(job, 403, "PUT", "/api/2.0/mlflow-artifacts/artifacts/0/silent/artifacts/a.txt", "text")
	want(job, 403, "GET", "/api/2.0/mlflow-artifacts/artifacts/"+exp.(string)+"/"+otherID+"/artifacts/a.txt", nil)
	root := &tracker{t, s.app.URL, job.token, client}
	want(root, 401, "GET", s.ws+"/jobs", nil)
	want(root, 401, "GET", "/berth/v1/server", nil)
	want(&tracker{t, job.uri, job.token + "x", client}, 401, "GET", mlflowAPI+"runs/get?run_id=talker", nil)
	want(&tracker{t, job.uri, "", client}, 401, "GET", mlflowAPI+"runs/get?run_id=talker", nil)

	// Addresses that were signed for the job are good for as long as the job.
	up := want(job, 200, "POST", "/api/2.0/mlflow-artifacts/mpu/create/"+exp.(string)+"/talker/artifacts", o{"path": "big.bin", "num_parts": 1})
	part, _ := at(up, "credentials", 0, "url").(string)
	signed := &tracker{t, part, "", client}
	want(signed, 201, "PUT", "", "part")

	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.wait("talker")
	want(signed, 403, "PUT", "", "part")
	want(job, 401, "GET", mlflowAPI+"runs/get?run_id=talker", nil)
	got = want(admin, 200, "GET", mlflowAPI+"runs/get?run_id=talker", nil)
	if at(got, "run", "info", "status") != "FINISHED" || at(got, "run", "info", "end_time") == nil ||
		at(got, "run", "data", "metrics", 0, "value") != 0.5 || at(got, "run", "data", "params", 0, "value") != "0.1" {
		t.Errorf("the run is %v", got)
	}
	files := want(admin, 200, "GET", mlflowAPI+"artifacts/list?run_id=talker&path=outputs", nil)
	if at(files, "files", 0, "path") != "outputs/x.txt" {
		t.Errorf("the files of the run are %v", files)
	}
	found := want(admin, 200, "POST", mlflowAPI+"runs/search", o{"experiment_ids": []string{"0"}, "filter": "attributes.status = 'FINISHED'"})
	if at(found, "runs", 0, "info", "run_id") != "silent" {
		t.Errorf("a job that never logs is not found: %v", found)
	}
}

// TestUploadInParts: a file comes in parts, in any order and without a token, and is there once
// they are complete; what is not the upload's own is refused.
func TestUploadInParts(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	k := trackerOf(t, map[string]string{
		"MLFLOW_TRACKING_SERVER_CERT_PATH": filepath.Join(home, "tls", "ca.pem"),
		"MLFLOW_TRACKING_URI":              s.app.URL + "/mlflow/v2.0" + s.ws, "MLFLOW_TRACKING_TOKEN": s.app.Token,
	})
	type o = map[string]any
	ask := func(status int, call string, body o) o {
		t.Helper()
		code, m := k.do("POST", "/api/2.0/mlflow-artifacts/mpu/"+call, body)
		if code != status {
			t.Fatalf("%s %v: %d %v, want %d", call, body, code, m, status)
		}
		return m
	}
	const name = "big.bin"
	up := ask(200, "create/0/sub%20folder/x", o{"path": "/home/ann/" + name, "num_parts": 3})
	id := up["upload_id"]
	parts := []o{}
	for _, n := range []int{2, 0, 1} {
		part := up["credentials"].([]any)[n].(o)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, part["url"].(string), strings.NewReader(strings.Repeat(string(rune('a'+n)), 5)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := k.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.Fatalf("part %d: %s", n, resp.Status)
		}
		parts = append(parts, o{"part_number": part["part_number"], "etag": resp.Header.Get("ETag"), "url": part["url"]})
	}
	ask(400, "complete/0/sub%20folder/x", o{"path": name, "upload_id": id, "parts": parts[:2]})
	ask(400, "complete/0/sub%20folder/x", o{"path": name, "upload_id": "another", "parts": parts})
	ask(400, "complete/0/sub%20folder/x", o{"path": name, "upload_id": id})
	ask(400, "create/0/%2e%2e/x", o{"path": name, "num_parts": 1})
	ask(400, "create/0/x", o{"path": "..", "num_parts": 1})
	ask(400, "create/0/x", o{"path": name, "num_parts": 0})
	ask(200, "complete/0/sub%20folder/x", o{"path": name, "upload_id": id, "parts": parts})
	if _, m := k.do("GET", "/api/2.0/mlflow-artifacts/artifacts/0/sub%20folder/x/big.bin", nil); m["raw"] != "aaaaabbbbbccccc" {
		t.Errorf("the file is %v", m)
	}
	gone := ask(200, "create/0/x", o{"path": name, "num_parts": 1})
	ask(200, "abort/0/x", o{"path": name, "upload_id": gone["upload_id"]})
}
