package slurm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// slurmrestd answers as version 0.0.38 did, which testdata/rest38 has.
type slurmrestd struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]string // METHOD PATH: status and a file, or the answer itself
	asked   []string
	body    map[string]any // of the last request that had one
}

func recorded() map[string]string {
	return map[string]string{
		"GET /openapi/v3": "200 openapi", "GET /slurm/v0.0.38/ping": "200 ping", "GET /slurm/v0.0.38/partitions": "200 partitions",
		"GET /slurm/v0.0.38/nodes": "200 nodes", "GET /slurm/v0.0.38/jobs": "200 jobs", "POST /slurm/v0.0.38/job/submit": "200 submit",
		"GET /slurm/v0.0.38/job/4": "200 job-waiting", "POST /slurm/v0.0.38/job/4": "200 delete", "DELETE /slurm/v0.0.38/job/4": "200 delete",
		"GET /slurm/v0.0.38/job/999": "500 job-unknown", "POST /slurm/v0.0.38/job/999": "500 job-unknown", "DELETE /slurm/v0.0.38/job/999": "500 delete-unknown",
		"DELETE /slurm/v0.0.38/job/3": "200 delete", "GET /slurmdb/v0.0.38/job/1": "200 past", "GET /slurmdb/v0.0.38/job/2": "200 past-killed", "GET /slurmdb/v0.0.38/job/999": "200 past-unknown",
	}
}

func (s *slurmrestd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Method + " " + r.URL.Path
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	if b, err := io.ReadAll(r.Body); err == nil && len(b) > 0 {
		s.body = nil
		_ = json.Unmarshal(b, &s.body)
	}
	if r.Header.Get("X-SLURM-USER-NAME") != "root" || !strings.HasPrefix(r.Header.Get("X-SLURM-USER-TOKEN"), "h.") {
		http.Error(w, "Authentication failure", http.StatusUnauthorized)
		return
	}
	var status int
	answer := s.answers[key]
	name := ""
	if n, _ := fmt.Sscanf(answer, "%d %s", &status, &name); n != 2 {
		http.Error(w, "Unable find requested URL.", http.StatusNotFound)
		return
	}
	b := []byte(strings.TrimPrefix(answer, fmt.Sprint(status, " ")))
	if !strings.HasPrefix(name, "{") {
		b, _ = os.ReadFile("testdata/rest38/" + name + ".json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// token is one that is good until then.
func token(until time.Time) string {
	return "h." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"sun":"root"}`, until.Unix())) + ".s"
}

// openRest is a connection to a slurmrestd whose answers are the recorded ones but for some.
func openRest(t *testing.T, other map[string]string) (*slurmrestd, *rest) {
	t.Helper()
	s := &slurmrestd{answers: recorded()}
	maps.Copy(s.answers, other)
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	at := restSettings{Address: s.URL, User: "root", CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))}
	if err := at.check(); err != nil {
		t.Fatal(err)
	}
	r := newRest(at)
	if err := r.connect(driver.Access{Secrets: map[string]string{RestToken: "SLURM_JWT=" + token(time.Now().Add(time.Hour)) + "\n"}}); err != nil {
		t.Fatal(err)
	}
	return s, r
}

func TestRestCluster(t *testing.T) {
	s, r := openRest(t, nil)
	a, err := r.cluster(t.Context())
	if want := (about{name: "ctl", version: "22.05.8", machine: "slurmrestd:" + s.URL, maxArray: 1}); err != nil || a != want {
		t.Errorf("%+v, %v", a, err)
	}
	nodes, err := r.nodes(t.Context(), "main")
	if want := []node{{CPUs: 4, Memory: 4000 << 20}, {CPUs: 4, Memory: 4000 << 20}}; err != nil || cmp.Diff(want, nodes) != "" {
		t.Errorf("%+v, %v", nodes, err)
	}
	if _, err := r.nodes(t.Context(), "other"); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("no such partition: %v", err)
	}
	if at, err := r.addresses(t.Context()); err != nil || at["n2"] != "127.0.0.1" {
		t.Errorf("%v, %v", at, err)
	}
}

func TestRestJobs(t *testing.T) {
	_, r := openRest(t, nil)
	all, err := r.jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]job{}
	for _, j := range all {
		got[nameOf(j)] = j
	}
	want := map[string]job{
		"b-failed":  {number: "1", name: "b-failed", state: "FAILED", why: "NonZeroExitCode", node: "n1", code: 3},
		"b-killed":  {number: "2", name: "b-killed", state: "FAILED", why: "JobLaunchFailure", node: "n1", code: 137},
		"b-running": {number: "3", name: "b-running", state: "RUNNING", why: "None", node: "n1"},
		"b-waiting": {number: "4", name: "b-waiting", state: "PENDING", why: "PartitionConfig"},
	}
	for name, w := range want {
		if g := got[name]; g != w {
			t.Errorf("%s: %+v, want %+v", name, g, w)
		}
	}
}

// TestRestNewer: later versions wrap numbers, and have lists where there were words.
func TestRestNewer(t *testing.T) {
	s, r := openRest(t, map[string]string{
		"GET /openapi/v3": `200 {"paths":{"/slurm/v0.0.39/jobs/":{},"/slurm/v0.0.41/jobs/":{},"/slurm/v0.0.99/jobs/":{},"/slurmdb/v0.0.41/job/{job_id}":{}}}`,
		"GET /slurm/v0.0.41/jobs": `200 {"jobs":[{"job_id":7,"array_job_id":{"set":true,"infinite":false,"number":0},"array_task_id":{"set":false,"infinite":false,"number":0},
			"name":"b-x","user_name":"root","job_state":["CANCELLED","COMPLETING"],"state_reason":"None","nodes":"n1","restart_cnt":1,
			"exit_code":{"status":["SIGNALED"],"return_code":{"set":false,"number":0},"signal":{"id":{"set":true,"number":9},"name":"Killed"}}},
			{"job_id":8,"name":"b-y","user_name":"other","job_state":["RUNNING"]}],"errors":[],"warnings":[]}`,
		"GET /slurm/v0.0.41/ping":        `200 {"meta":{"slurm":{"release":"24.05.1","cluster":"big"}},"pings":[{"hostname":"c","pinged":"UP"}],"errors":[]}`,
		"GET /slurm/v0.0.41/nodes":       `200 {"nodes":[{"name":"n1","address":"n1","cpus":8,"real_memory":1000,"gres":"gpu:a100:2(S:0)","state":["IDLE","DRAIN"],"partitions":["main"]}]}`,
		"GET /slurm/v0.0.41/partitions":  `200 {"partitions":[{"name":"main","maximums":{"time":{"set":true,"infinite":false,"number":60}}}]}`,
		"POST /slurm/v0.0.41/job/submit": `200 {"job_id":9,"errors":[]}`,
		"DELETE /slurm/v0.0.41/job/7":    `200 {"errors":[]}`,
		"GET /slurmdb/v0.0.41/job/7":     `200 {"jobs":[{"nodes":"n1","state":{"current":["TIMEOUT"],"reason":"None"},"exit_code":{"status":["SUCCESS"],"return_code":{"set":true,"number":0}}}],"errors":[]}`,
	})
	if a, err := r.cluster(t.Context()); err != nil || a.name != "big" || a.version != "24.05.1" {
		t.Errorf("%+v, %v", a, err)
	}
	if all, err := r.jobs(t.Context()); err != nil || len(all) != 1 || all[0] != (job{number: "7", name: "b-x", state: "COMPLETING", why: "None", node: "n1", code: 137, restarts: 1}) {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := r.nodes(t.Context(), "main"); err != nil || len(all) != 1 || all[0] != (node{CPUs: 8, Memory: 1000 << 20, GPUs: 2, Down: true, Longest: time.Hour}) {
		t.Errorf("%+v, %v", all, err)
	}
	w := work{nodes: 2, gpus: 1, memory: 1 << 30, script: []byte("#!/bin/sh\n"), about: "task a"}
	if n, err := r.submit(t.Context(), "b-x", w, 1); n != "9" || err != nil {
		t.Errorf("%s, %v", n, err)
	}
	job, _ := s.body["job"].(map[string]any)
	if job["tres_per_node"] != "gres/gpu:1" || job["requeue"] != false || job["minimum_nodes"] != 2.0 || cmp.Diff(map[string]any{"set": true, "number": 1024.0}, job["memory_per_node"]) != "" {
		t.Errorf("job %v", job)
	}
	if err := r.ask(t.Context(), "7", false); err != nil || s.asked[len(s.asked)-1] != "DELETE /slurm/v0.0.41/job/7?flags=BATCH_JOB&signal=USR1" {
		t.Errorf("%v, %v", err, s.asked)
	}
	if j, kept, err := r.past(t.Context(), "7"); err != nil || !kept || j.state != "TIMEOUT" || j.unsaid {
		t.Errorf("%+v, %v", j, err)
	}
}

func TestRestSubmit(t *testing.T) {
	w := work{nodes: 2, cpus: 1.5, memory: 1 << 30, gpus: 2, script: []byte("#!/bin/sh\nexit 3\n"), about: "task a", site: site{Partition: "main", limit: 90 * time.Second, Options: []string{"--nice=5"}}}
	s, r := openRest(t, nil)
	if n, err := r.submit(t.Context(), "b-x", w, 1); n != "1" || err != nil {
		t.Fatalf("%s, %v", n, err)
	}
	want := map[string]any{
		"name": "b-x", "comment": "berth task a", "standard_output": "/dev/null", "standard_error": "/dev/null", "current_working_directory": "/",
		"tasks": 2.0, "tasks_per_node": 1.0, "nodes": "2", "no_requeue": true, "partition": "main", "time_limit": 2.0, "cpus_per_task": 2.0,
		"memory_per_node": 1024.0, "gres": "gpu:2", "nice": 5.0,
		"environment": map[string]any{"PATH": "/usr/local/bin:/usr/bin:/bin", "USER": "root", "LOGNAME": "root"},
	}
	if diff := cmp.Diff(map[string]any{"script": "#!/bin/sh\nexit 3\n", "job": want}, s.body); diff != "" {
		t.Error(diff)
	}
	for answer, x := range map[string]struct {
		number string
		code   berth.Code
		says   string
		taken  bool // nobody knows
	}{
		"200 submit-waits":    {number: "4"},
		"500 submit-refused":  {code: berth.Invalid, says: "Invalid partition name"},
		"400 submit-unparsed": {code: berth.Invalid, says: "Failure during parsing"},
		"500 away-submit":     {code: berth.Unavailable, says: "Slurm's controller does not answer slurmrestd"},
		"500 expired-submit":  {code: berth.Unavailable, says: "does not accept the token of root any more", taken: true},
		"404 none":            {code: berth.Unavailable, says: "slurmrestd does not know", taken: true},
	} {
		_, r := openRest(t, map[string]string{"POST /slurm/v0.0.38/job/submit": answer})
		n, err := r.submit(t.Context(), "b-x", w, 1)
		if n != x.number || berth.CodeOf(err) != x.code || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %q, %v", answer, n, err)
		}
		if said := isSaid(err); x.code == berth.Unavailable && said == x.taken {
			t.Errorf("%s: Slurm's own answer %v: %v", answer, said, err)
		}
	}
}

func TestRestPast(t *testing.T) {
	_, r := openRest(t, nil)
	for number, want := range map[string]job{
		"1":   {number: "1", state: "FAILED", node: "n1", unsaid: true},
		"2":   {number: "2", state: "FAILED", node: "n1", code: 137},
		"999": {},
	} {
		if j, kept, err := r.past(t.Context(), number); err != nil || !kept || j != want {
			t.Errorf("%s: %+v, %v, %v", number, j, kept, err)
		}
	}
	_, r = openRest(t, map[string]string{"GET /slurmdb/v0.0.38/job/1": "200 expired-past"}) // as where slurmdbd takes no tokens
	if j, kept, err := r.past(t.Context(), "1"); err != nil || kept || j.state != "" {
		t.Errorf("%+v, %v, %v", j, kept, err)
	}
}

func TestRestStops(t *testing.T) {
	s, r := openRest(t, nil)
	for _, do := range []func() error{
		func() error { return r.cancelWaiting(t.Context(), "4") },
		func() error { return r.ask(t.Context(), "3", false) },
		func() error { return r.ask(t.Context(), "3", true) },
		func() error { return r.cancel(t.Context(), "3") },
		func() error { return r.cancel(t.Context(), "999") },
		func() error { return r.cancelWaiting(t.Context(), "999") },
	} {
		if err := do(); err != nil {
			t.Error(err)
		}
	}
	const at = " /slurm/v0.0.38/job/"
	want := []string{
		"GET /openapi/v3", "POST" + at + "4", "GET" + at + "4", "DELETE" + at + "4", "DELETE" + at + "3?signal=28", "DELETE" + at + "3?signal=USR2", "DELETE" + at + "3",
		"DELETE" + at + "999", "POST" + at + "999", "GET" + at + "999",
	}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Error(diff)
	}
	if err := r.throttle(t.Context(), "1", 2); berth.CodeOf(err) != berth.Unsupported {
		t.Error(err)
	}
}

// TestRestToken: why nothing comes of a token that is not good any more.
func TestRestToken(t *testing.T) {
	ctx := context.Background()
	s, r := openRest(t, map[string]string{"GET /slurm/v0.0.38/jobs": "500 expired-jobs"})
	if _, err := r.jobs(ctx); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "does not accept the token") {
		t.Errorf("as v0.0.38 says it: %v", err)
	}
	secrets := func(token string) driver.Access {
		return driver.Access{Secrets: map[string]string{RestToken: token}}
	}
	if err := r.connect(secrets("bad")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cluster(ctx); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "the token of root for Slurm has expired or is refused; attach again with a new one") {
		t.Errorf("refused: %v", err)
	}
	if err := r.connect(secrets(token(time.Now().Add(-time.Minute)))); err != nil {
		t.Fatal(err)
	}
	asked := len(s.asked)
	if _, err := r.submit(ctx, "b-x", work{nodes: 1}, 1); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "has expired, on 20") || !isSaid(err) {
		t.Errorf("expired: %v", err)
	}
	if len(s.asked) != asked {
		t.Error("a token that has expired was sent")
	}
	for _, bad := range []string{"", "a b", "a\nb"} {
		if err := r.connect(secrets(bad)); berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	r.close()
	if _, err := r.jobs(ctx); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("closed: %v", err)
	}
	s.Close()
}

func isSaid(err error) bool {
	_, ok := errors.AsType[*commandError](err)
	return ok
}

// TestRestVersions: a server that offers nothing that is known is not used.
func TestRestVersions(t *testing.T) {
	_, r := openRest(t, map[string]string{"GET /openapi/v3": `200 {"paths":{"/slurm/v0.0.36/jobs":{}}}`})
	if _, err := r.cluster(t.Context()); berth.CodeOf(err) != berth.Unsupported || !strings.Contains(err.Error(), "v0.0.36") {
		t.Error(err)
	}
}

// TestRestAddress: the server sends requests, and tokens, only where its operator has said so.
func TestRestAddress(t *testing.T) {
	for _, x := range []struct {
		address, allow string
		code           berth.Code
	}{
		{"https://slurm.lab:6820", "", berth.Denied},
		{"https://slurm.lab:6820", "slurm.lab", ""},
		{"https://slurm.lab:6820", "slurm.lab:6820", ""},
		{"https://slurm.lab:6821", "slurm.lab:6820", berth.Denied},
		{"http://slurm.lab:6820", "slurm.lab:6820", berth.Denied},
		{"http://slurm.lab:6820", "http://slurm.lab:6820", ""},
		{"http://127.0.0.1:6820", "", berth.Denied},
		{"http://127.0.0.1:6820", "127.0.0.1:6820", ""},
		{"http://localhost:6820", "localhost:6820", ""},
		{"ftp://slurm.lab", "slurm.lab", berth.Invalid},
		{"https://a:b@slurm.lab", "slurm.lab", berth.Invalid},
		{"https://slurm.lab/x", "slurm.lab", berth.Invalid},
	} {
		document := fmt.Appendf(nil, `{"properties":{"computeType":"Slurm","properties":{"restSettings":{"address":%q,"user":"me"}}}}`, x.address)
		c := driver.Config{Name: "site", Dir: t.TempDir(), Properties: document}
		if x.allow != "" {
			c.Hosts = []string{x.allow}
		}
		d, err := Open(c)
		if berth.CodeOf(err) != x.code {
			t.Errorf("%s with %q: %v", x.address, x.allow, err)
		}
		if d != nil {
			d.(*Driver).Close()
		}
	}
}

// TestRestDocuments: a token is for one address and user, and what slurmrestd cannot do is refused
// at once.
func TestRestDocuments(t *testing.T) {
	document := func(inner string) []byte {
		return []byte(`{"properties":{"computeType":"Slurm","properties":{` + inner + `}}}`)
	}
	const settings = `"restSettings":{"address":"https://slurm.lab:6820","user":"me"}`
	was := document(settings)
	wrong := []byte(`{"properties": {"computeType": "Slurm", "properties": {"restSettings": {"address": "ftp://x", "user": "me"}}}}`)
	if _, err := Open(driver.Config{Properties: wrong}); AsServer(wrong) || err == nil || !strings.Contains(err.Error(), "must be https://HOST:PORT") {
		t.Errorf("a wrong address: %v", err) // and not what is asked of the operator where there is none
	}
	if err := Check(nil, was); err != nil || AsServer(was) {
		t.Errorf("%v, as server %v", err, AsServer(was))
	}
	for other, code := range map[string]berth.Code{
		strings.Replace(settings, "slurm.lab", "evil.lab", 1):          berth.Conflict,
		strings.Replace(settings, `"me"`, `"root"`, 1):                 berth.Conflict,
		`"partition":"main"`:                                           berth.Conflict,
		settings + `,"address":"login.lab"`:                            berth.Invalid,
		settings + `,"options":["--exclusive"]`:                        berth.Invalid,
		settings + `,"sizes":{"a":{"options":["--exclusive"]}}`:        berth.Invalid,
		settings + `,"options":["--gres=gpu:1"],"partition":"another"`: "",
	} {
		if err := Check(was, document(other)); berth.CodeOf(err) != code {
			t.Errorf("%s: %v", other, err)
		}
	}
}
