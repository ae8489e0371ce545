package mlflow_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth/e2e/world"
)

type o = map[string]any

// side is one of the two servers. Both give out their own ids, which stand as $1, $2 … in what is
// sent and what is compared.
type side struct {
	t    *testing.T
	base string
	auth string
	http *http.Client
	ids  map[string]string // id → $n
	back map[string]string
}

// learn names an id that a server gave out.
func (s *side) learn(name, id string) {
	s.ids[id], s.back["$"+name] = "$"+name, id
}

// fill puts the side's own ids into what is sent.
func (s *side) fill(text string) string {
	names := slices.SortedFunc(maps.Keys(s.back), func(a, b string) int { return len(b) - len(a) })
	for _, n := range names {
		text = strings.ReplaceAll(text, n, s.back[n])
	}
	return text
}

// do sends a request and returns its status and answer.
func (s *side) do(method, path string, body any) (int, any) {
	s.t.Helper()
	var r io.Reader
	kind := "application/json"
	if text, ok := body.(raw); ok {
		r, kind = strings.NewReader(s.fill(text.body)), text.kind
	} else if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		r = bytes.NewReader([]byte(s.fill(string(b))))
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+"/api/2.0/mlflow/"+s.fill(path), r)
	if err != nil {
		s.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if s.auth != "" {
		req.Header.Set("Authorization", "Bearer "+s.auth)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		v = o{"text": string(b)}
	}
	return resp.StatusCode, v
}

// volatile are members that say when, by which user or by which release something was done.
var volatile = map[string]bool{
	"creation_time": true, "last_update_time": true, "creation_timestamp": true, "last_updated_timestamp": true, "user_id": true, "message": true,
	"creation_timestamp_ms": true, "last_updated_timestamp_ms": true, "workspace": true, "sqlstate": true, "error_class": true,
	"source_job": true,
}

// plain is an answer in which both sides say the same: ids by their names, nothing volatile, sets
// in order. Three differences are meant: an infinity comes back as one and not as the largest
// number, versions in lists have their aliases, and empty outputs are left out.
func (s *side) plain(v any) any {
	switch v := v.(type) {
	case o:
		out := o{}
		for k, x := range v {
			x = s.plain(x)
			if k == "next_page_token" && x != "" {
				x = "there is more"
			}
			if empty, ok := x.(o); k == "outputs" && ok && len(empty) == 0 || k == "aliases" && v["current_stage"] != nil || volatile[k] || x == nil {
				continue
			}
			out[k] = x
			if k == "tags" || k == "params" || k == "latest_versions" || k == "metrics" && !hasSteps(v[k]) {
				if l, ok := out[k].([]any); ok {
					slices.SortFunc(l, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
				}
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = s.plain(x)
		}
		return out
	case float64:
		if math.Abs(v) == math.MaxFloat64 {
			return map[bool]string{true: "Infinity", false: "-Infinity"}[v > 0]
		}
	case string:
		for id, name := range s.ids {
			if len(id) > 8 {
				v = strings.ReplaceAll(v, id, name)
			}
		}
		if name, ok := s.ids[v]; ok {
			return name
		}
		return v
	}
	return v
}

// hasSteps says whether a list of metrics is a history, whose order counts.
func hasSteps(v any) bool {
	l, _ := v.([]any)
	keys := map[any]bool{}
	for _, x := range l {
		m, _ := x.(o)
		keys[m["key"]] = true
	}
	return len(keys) == 1 && len(l) > 1
}

// pair is both servers.
type pair struct {
	t         *testing.T
	real, own *side
	n, same   int
	pages     int // how many tokens of pages were followed
}

// ask sends the same to both and compares. name, where there is one, names the id at a path of the
// answer.
func (p *pair) ask(method, path string, body any, name string, at ...string) {
	p.t.Helper()
	p.n++
	status, want := p.real.do(method, path, body)
	got, answer := p.own.do(method, path, body)
	if code, _ := answer.(o); status >= 500 && got/100 == 4 && codes[code["error_code"]] {
		p.same++ // a mistake of the user's that the original does not expect
		return
	}
	if name != "" && status == 200 && got == 200 {
		p.real.learn(name, idAt(want, at))
		p.own.learn(name, idAt(answer, at))
	}
	if diff := cmp.Diff(p.real.plain(want), p.own.plain(answer)); status != got || diff != "" {
		b, _ := json.Marshal(body) //nolint:errchkjson // as it was sent
		p.t.Errorf("%s %s %s: %d %v, mlflow says %d %v\n(-mlflow +berth):\n%s", method, path, b, got, message(answer), status, message(want), diff)
		return
	}
	p.same++
	p.further(method, path, body, want, answer)
}

// codes are those of MLflow that a user's mistake may have.
var codes = map[any]bool{
	"INVALID_PARAMETER_VALUE": true, "BAD_REQUEST": true, "RESOURCE_DOES_NOT_EXIST": true, "RESOURCE_ALREADY_EXISTS": true, "ENDPOINT_NOT_FOUND": true,
	"INVALID_STATE": true, "PERMISSION_DENIED": true,
}

// further asks both for the next page of a search, each with its own token.
func (p *pair) further(method, path string, body, want, answer any) {
	p.t.Helper()
	question, ok := body.(o)
	token, own := tokenOf(want), tokenOf(answer)
	if !ok || token == "" || own == "" || question["page_token"] != nil {
		return
	}
	p.pages++
	name := fmt.Sprint("page", p.pages, "$")
	p.real.learn(name, token)
	p.own.learn(name, own)
	next := maps.Clone(question)
	next["page_token"] = "$" + name
	p.ask(method, path, next, "")
}

func tokenOf(answer any) string {
	m, _ := answer.(o)
	token, _ := m["next_page_token"].(string)
	return token
}

func message(v any) any {
	m, _ := v.(o)
	return m["message"]
}

func idAt(v any, at []string) string {
	for _, k := range at {
		m, _ := v.(o)
		v = m[k]
	}
	id, _ := v.(string)
	return id
}

// mlflowServer starts the real server with an empty database.
func mlflowServer(t *testing.T, python string) *side {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	dir := t.TempDir()
	cmd := exec.CommandContext(context.Background(), python, "-m", "mlflow", "server", "--backend-store-uri", "sqlite:///"+filepath.Join(dir, "db"),
		"--artifacts-destination", filepath.Join(dir, "artifacts"), "--host", "127.0.0.1", "--port", port, "--workers", "1")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "MLFLOW_DISABLE_TELEMETRY=true", "GIT_PYTHON_REFRESH=quiet")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-gone
	})
	s := &side{t: t, base: "http://127.0.0.1:" + port, http: http.DefaultClient, ids: map[string]string{}, back: map[string]string{}}
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case err := <-gone:
			gone <- err
			t.Fatalf("the mlflow server ended: %v\n%s", err, out.String())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// berthSide is a workspace of a Berth server.
func berthSide(t *testing.T) *side {
	t.Helper()
	s := world.Start(t)
	side := &side{t: t, auth: s.Token, ids: map[string]string{}, back: map[string]string{}, http: clientOf(t, s)}
	out, err := s.Command("tracking-uri").Output()
	if err != nil {
		t.Fatal(err)
	}
	side.base = strings.TrimSpace(string(out))
	return side
}

func clientOf(t *testing.T, s *world.Server) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(s.CABundle)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TestSameAnswers sends the same requests, filters made at random among them, to a real mlflow
// server and to Berth, and compares the answers. BERTH_SEED makes other filters.
func TestSameAnswers(t *testing.T) {
	python := world.Python(t, clients["3.17.2"]...)
	p := &pair{t: t, real: mlflowServer(t, python), own: berthSide(t)}
	p.fillRuns()
	p.badRequests()
	p.badInput()
	p.registry()
	seed := uint64(1)
	if text := os.Getenv("BERTH_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	p.filters(rand.New(rand.NewPCG(seed, 2)), 250)
	if p.n < 300 {
		t.Errorf("%d requests are too few", p.n)
	}
	if p.pages == 0 {
		t.Error("no answer had a further page")
	}
	t.Logf("%d of %d answers are the same, %d of them are further pages", p.same, p.n, p.pages)
}

const runs = 24

// fillRuns makes experiments and runs with all that can be searched for.
func (p *pair) fillRuns() {
	p.ask("POST", "experiments/create", o{"name": "one", "tags": []o{{"key": "team", "value": "a"}}}, "exp", "experiment_id")
	p.ask("POST", "experiments/create", o{"name": "two"}, "exp2", "experiment_id")
	p.ask("GET", "experiments/get-by-name?experiment_name=one", nil, "")
	for i := range runs {
		id := fmt.Sprintf("run%02d", i)
		p.ask("POST", "runs/create", o{"experiment_id": "$exp", "start_time": 1000 + i, "run_name": fmt.Sprintf("name %d", i%7), "tags": []o{{"key": "k", "value": fmt.Sprint(i % 3)}}}, id, "run", "info", "run_id")
		batch := o{"run_id": "$" + id, "params": []o{{"key": "lr", "value": fmt.Sprint(i%5, "e-3")}, {"key": "a b", "value": "X" + fmt.Sprint(i%2)}}}
		metrics := []o{}
		for step := range i % 4 {
			metrics = append(metrics, o{"key": "acc", "value": float64((i*7)%11) / 10, "timestamp": 10 + step, "step": step}, o{"key": "m/loss", "value": -float64(i), "timestamp": 5, "step": -step})
		}
		if i%6 == 5 {
			metrics = append(metrics, o{"key": "acc", "value": []string{"NaN", "Infinity", "-Infinity"}[i/6%3], "timestamp": 99, "step": 9})
		}
		batch["metrics"] = metrics
		p.ask("POST", "runs/log-batch", batch, "")
		if i%3 == 0 {
			p.ask("POST", "runs/log-inputs", o{"run_id": "$" + id, "datasets": []o{{"tags": []o{{"key": "mlflow.data.context", "value": "train"}}, "dataset": o{"name": fmt.Sprint("d", i%2), "digest": fmt.Sprint(i), "source_type": "s", "source": "x"}}}}, "")
		}
		if i%4 == 1 {
			p.ask("POST", "runs/update", o{"run_id": "$" + id, "status": "FINISHED", "end_time": 5000 + i}, "")
		}
		p.ask("GET", "runs/get?run_id=$"+id, nil, "")
		p.ask("GET", "metrics/get-history?metric_key=acc&run_id=$"+id, nil, "")
	}
	p.ask("POST", "runs/delete", o{"run_id": "$run03"}, "")
	p.ask("POST", "runs/set-tag", o{"run_id": "$run02", "key": "mlflow.runName", "value": "renamed"}, "")
	p.ask("POST", "runs/delete-tag", o{"run_id": "$run02", "key": "k"}, "")
}

// badRequests are mistakes of all kinds.
func (p *pair) badRequests() {
	long := strings.Repeat("k", 300)
	for _, b := range []struct {
		method, path string
		body         any
	}{
		{"POST", "experiments/create", o{}},
		{"POST", "experiments/create", o{"name": "one"}},
		{"POST", "experiments/create", o{"name": ""}},
		{"POST", "experiments/create", o{"name": 3}},
		{"GET", "experiments/get?experiment_id=987", nil},
		{"GET", "experiments/get?experiment_id=abc", nil},
		{"GET", "experiments/get-by-name?experiment_name=nosuch", nil},
		{"GET", "runs/get?run_id=nosuch", nil},
		{"GET", "runs/get", nil},
		{"POST", "runs/log-metric", o{"run_id": "$run01", "key": "a", "timestamp": 1}},
		{"POST", "runs/log-metric", o{"run_id": "$run01", "key": "a", "value": 1}},
		{"POST", "runs/log-metric", o{"run_id": "$run01", "key": "a", "value": 1, "timestamp": -1}},
		{"POST", "runs/log-metric", o{"run_id": "$run01", "key": "a*b", "value": 1, "timestamp": 1}},
		{"POST", "runs/log-metric", o{"run_id": "$run01", "key": "a/../b", "value": 1, "timestamp": 1}},
		{"POST", "runs/log-metric", o{"run_id": "$run01", "key": "/a", "value": 1, "timestamp": 1}},
		{"POST", "runs/log-metric", o{"run_id": "$run01", "key": long, "value": 1, "timestamp": 1}},
		{"POST", "runs/log-metric", o{"run_id": "nosuch", "key": "a", "value": 1, "timestamp": 1}},
		{"POST", "runs/log-metric", o{"run_id": "$run03", "key": "a", "value": 1, "timestamp": 1}},
		{"POST", "runs/log-parameter", o{"run_id": "$run01", "key": "lr", "value": "another"}},
		{"POST", "runs/log-parameter", o{"run_id": "$run01", "key": long, "value": "v"}},
		{"POST", "runs/log-parameter", o{"run_id": "$run01", "key": "long", "value": strings.Repeat("v", 7000)}},
		{"POST", "runs/log-batch", o{"run_id": "$run01", "params": []o{{"key": "d", "value": "1"}, {"key": "d", "value": "2"}}}},
		{"POST", "runs/log-batch", o{"run_id": "$run01", "metrics": []o{{"key": "d", "timestamp": 1}}}},
		{"POST", "runs/log-batch", o{"run_id": "$run01", "params": many(101)}},
		{"POST", "runs/log-batch", o{"run_id": "$run01", "tags": many(101)}},
		{"POST", "runs/log-batch", o{}},
		{"POST", "runs/set-tag", o{"run_id": "$run01", "value": "v"}},
		{"POST", "runs/delete-tag", o{"run_id": "$run01", "key": "zz"}},
		{"POST", "runs/create", o{"experiment_id": "987"}},
		{"POST", "runs/create", o{"experiment_id": "$exp", "run_name": "x", "tags": []o{{"key": "mlflow.runName", "value": "y"}}}},
		{"POST", "runs/search", o{"experiment_ids": []string{"$exp"}, "max_results": 0}},
		{"POST", "runs/search", o{"experiment_ids": []string{"$exp"}, "max_results": 50001}},
		{"POST", "runs/search", o{"experiment_ids": []string{"$exp"}, "page_token": "garbage!"}},
		{"POST", "runs/search", o{}},
		{"POST", "experiments/search", o{}},
		{"POST", "experiments/search", o{"max_results": 10, "filter": "nosuch = 'x'"}},
		{"GET", "registered-models/get?name=nosuch", nil},
		{"POST", "registered-models/create", o{"name": "a/b"}},
		{"POST", "registered-models/create", o{}},
		{"GET", "model-versions/get?name=nosuch&version=1", nil},
		{"GET", "model-versions/get?name=nosuch&version=x", nil},
		{"GET", "artifacts/list?run_id=$run01&path=../..", nil},
		{"GET", "artifacts/list?run_id=$run01", nil},
	} {
		p.ask(b.method, b.path, b.body, "")
	}
	for _, filter := range []string{"name = 'one'", "name LIKE 'o%'", "name ILIKE 'T%'", "tags.team = 'a'", "tags.team != 'a'", "tags.team IS NULL", "name != 'one'", "attribute.name = \"two\"", ""} {
		p.ask("POST", "experiments/search", o{"max_results": 10, "filter": filter}, "")
		p.ask("POST", "experiments/search", o{"max_results": 10, "filter": filter, "order_by": []string{"name DESC"}}, "")
	}
}

func many(n int) []o {
	out := make([]o, n)
	for i := range out {
		out[i] = o{"key": fmt.Sprint("k", i), "value": "v"}
	}
	return out
}

// registry goes through the life of registered models.
func (p *pair) registry() {
	for _, name := range []string{"A", "b model", "C"} {
		p.ask("POST", "registered-models/create", o{"name": name, "description": "of " + name, "tags": []o{{"key": "t", "value": name}}}, "")
	}
	p.ask("POST", "registered-models/create", o{"name": "A"}, "")
	for i := range 3 {
		p.ask("POST", "model-versions/create", o{"name": "A", "source": fmt.Sprintf("s3://bucket/%d", i), "run_id": "$run01", "tags": []o{{"key": "n", "value": fmt.Sprint(i)}}}, "")
	}
	p.ask("POST", "model-versions/create", o{"name": "C", "source": "mlflow-artifacts:/$exp/$run01/artifacts/x", "run_id": "$run01"}, "")
	for _, source := range []string{"/etc/passwd", "file:///etc", "../x", "s3://bucket/../x", "mlflow-artifacts:/1/../x"} {
		p.ask("POST", "model-versions/create", o{"name": "C", "source": source}, "")
	}
	p.ask("POST", "model-versions/transition-stage", o{"name": "A", "version": "2", "stage": "Production", "archive_existing_versions": false}, "")
	p.ask("POST", "model-versions/transition-stage", o{"name": "A", "version": "3", "stage": "production", "archive_existing_versions": true}, "")
	p.ask("POST", "model-versions/transition-stage", o{"name": "A", "version": "3", "stage": "bogus"}, "")
	p.ask("POST", "registered-models/alias", o{"name": "A", "alias": "best", "version": "3"}, "")
	for _, alias := range []string{"latest", "v1", "a b", ""} {
		p.ask("POST", "registered-models/alias", o{"name": "A", "alias": alias, "version": "3"}, "")
	}
	for _, path := range []string{
		"registered-models/get?name=A", "registered-models/alias?name=A&alias=best", "registered-models/alias?name=A&alias=none", "model-versions/get?name=A&version=2",
		"model-versions/get-download-uri?name=A&version=1", "registered-models/search", "registered-models/search?order_by=name+DESC", "model-versions/search",
	} {
		p.ask("GET", path, nil, "")
	}
	for _, filter := range []string{"name = 'A'", "name LIKE '%o%'", "name ILIKE 'c'", "tags.t = 'C'", "tags.t != 'C'", "nosuch = '1'", "name > 'A'", "name IN ('A', 'C')"} {
		p.ask("GET", "registered-models/search?filter="+url.QueryEscape(filter), nil, "")
	}
	for _, filter := range []string{"name = 'A'", "run_id = '$run01'", "tags.n = '1'", "tags.n != '1'", "name = 'A' AND tags.n = '2'", "version_number > 1", "source_path LIKE 's3:%'", "run_id IN ('$run01')", "name > 'A'"} {
		p.ask("GET", "model-versions/search?filter="+strings.ReplaceAll(url.QueryEscape(filter), "%24", "$"), nil, "")
	}
	p.ask("DELETE", "model-versions/delete", o{"name": "A", "version": "3"}, "")
	p.ask("GET", "registered-models/get?name=A", nil, "")
	p.ask("POST", "model-versions/create", o{"name": "A", "source": "s3://bucket/next"}, "")
	p.ask("POST", "registered-models/rename", o{"name": "A", "new_name": "Z"}, "")
	p.ask("DELETE", "registered-models/delete", o{"name": "Z"}, "")
	p.ask("GET", "registered-models/get?name=Z", nil, "")
}

// filters searches runs with filters and orders made at random, of which some are wrong.
func (p *pair) filters(r *rand.Rand, n int) {
	pick := func(l ...string) string { return l[r.IntN(len(l))] }
	clause := func() string {
		switch r.IntN(9) {
		case 0, 1:
			return pick("metrics.acc", "metric.acc", "metrics.`m/loss`", `metrics."acc"`, "metrics.none") + pick(" > ", " >= ", "<", " <= ", " = ", " != ") + pick("0.5", "0", "-3", "1e-1", ".3", "0.30")
		case 2, 3:
			return pick("params.lr", "param.lr", "params.`a b`", "params.none", `parameters."a b"`) + pick(" = ", " != ", " LIKE ", " ILIKE ", " like ") + pick("'1e-3'", "'X0'", "'x%'", "'%1'", `"_1"`, "'1_-3'")
		case 4:
			return pick("tags.k", "tag.k", "tags.`mlflow.runName`", "tags.mlflow.runName", "tags.none", "params.none", "params.lr") + pick(" = '1'", " != '1'", " IS NULL", " IS NOT NULL", " is null", " LIKE 'name%'")
		case 5:
			return pick("status = 'FINISHED'", "attributes.status != 'RUNNING'", "run_name LIKE 'name%'", "attribute.run_name = 'name 3'", "`run name` = 'renamed'", "start_time > 1005", "attributes.start_time <= 1003", "end_time >= 5000", "created > 1004", "end_time != 5001")
		case 6:
			return pick("run_id = '$run05'", "attributes.run_id IN ('$run01', '$run02')", "run_id NOT IN ('$run01','$run04')", "dataset.name = 'd1'", "datasets.digest IN ('3', '9')", "dataset.context = 'train'", "dataset.context LIKE 't%'")
		case 7:
			return pick("metrics.acc > 0.1", "params.lr != '2e-3'", "tags.k = '2'")
		}
		return pick("metrics.acc > '0.5'", "params.lr = 5", "params.lr > '5'", "nosuch = 'x'", "metrics.acc", "metrics.acc LIKE 3", "params.lr = 'a' OR params.lr = 'b'", "(params.lr = 'a')", "= 'x'", "tags.k IN ('1')", "metrics.acc IS NULL", "zz.k = 'v'", "params.lr = 'a", "run_id IN ()", "start_time = '5'", "status > 'A'", "attributes.zzz = 'x'", "metrics.acc > 0.5;")
	}
	order := func() string {
		return pick("metrics.acc", "metrics.acc DESC", "params.lr ASC", "tags.k desc", "start_time", "attributes.start_time DESC", "end_time", "run_name", "status", "params.`a b`", "metrics.`m/loss` DESC",
			"attribute.run_name DESC", "created", "nosuch", "metrics.acc DOWN", "", "metrics", "params.none", "end_time DESC")
	}
	for range n {
		var clauses []string
		for range r.IntN(4) {
			clauses = append(clauses, clause())
		}
		body := o{"experiment_ids": []string{"$exp", "$exp2"}, "filter": strings.Join(clauses, pick(" AND ", " and ", "  AND  ")), "max_results": 5 + r.IntN(30)}
		if k := r.IntN(3); k > 0 {
			var by []string
			for range k {
				by = append(by, order())
			}
			body["order_by"] = by
		}
		if r.IntN(4) == 0 {
			body["run_view_type"] = pick("ALL", "DELETED_ONLY", "ACTIVE_ONLY")
		}
		p.ask("POST", "runs/search", body, "")
	}
}
