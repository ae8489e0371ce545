package track_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// TestFaults: what is wrong is said with MLflow's codes and words, and never with a 5xx.
func TestFaults(t *testing.T) {
	s := start(t, t.TempDir())
	run := s.newRun("0", nil)
	gone := s.newRun("0", nil)
	s.must("POST", "runs/delete", obj{"run_id": gone})
	s.must("POST", "runs/log-parameter", obj{"run_id": run, "key": "p", "value": "1"})
	dead := s.must("POST", "experiments/create", obj{"name": "dead"})["experiment_id"]
	s.must("POST", "experiments/delete", obj{"experiment_id": dead})
	s.must("POST", "registered-models/create", obj{"name": "M"})
	long := strings.Repeat("k", 10_000)
	many := func(n int, key string) []obj {
		out := make([]obj, n)
		for i := range out {
			out[i] = obj{"key": key + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26%26) + strings.Repeat("z", i/676), "value": "1"}
		}
		return out
	}
	const (
		invalid = "INVALID_PARAMETER_VALUE"
		absent  = "RESOURCE_DOES_NOT_EXIST"
		exists  = "RESOURCE_ALREADY_EXISTS"
	)
	for _, c := range []struct {
		method, path string
		body         any
		code, says   string
	}{
		{"POST", "experiments/create", obj{}, invalid, "Missing value for required parameter 'name'. See the API docs"},
		{"POST", "experiments/create", obj{"name": 123}, invalid, "Invalid value 123 for parameter 'name' supplied:  Hint: Value was of type 'int'. See the API docs"},
		{"POST", "experiments/create", `{"name": "x"`, invalid, "Missing value for required parameter 'name'"},
		{"POST", "experiments/create", `[1]`, invalid, "The request must be a JSON object"},
		{"POST", "experiments/create", strings.Repeat("[", 100_000), invalid, "The request is nested more than 64 levels deep"},
		{"POST", "experiments/create", obj{"name": "dead"}, exists, "Experiment(name=dead) already exists"},
		{"POST", "experiments/create", obj{"name": "Default"}, exists, "Experiment(name=Default) already exists"},
		{"GET", "experiments/get?experiment_id=987", nil, absent, "No Experiment with id=987 exists"},
		{"GET", "experiments/get?experiment_id=abc", nil, invalid, "Invalid experiment ID 'abc'. Experiment ID must be a valid integer."},
		{"GET", "experiments/get-by-name?experiment_name=nosuch", nil, absent, "Could not find experiment with name 'nosuch'"},
		{"POST", "experiments/update", obj{"experiment_id": dead, "new_name": "x"}, "INVALID_STATE", "Cannot rename a non-active experiment."},
		{"POST", "experiments/delete", obj{"experiment_id": dead}, absent, "No Experiment with id"},
		{"POST", "runs/create", obj{"experiment_id": dead}, invalid, "must be in the 'active' state. Current state is deleted."},
		{"POST", "runs/create", obj{"experiment_id": "0", "run_name": "a", "tags": []obj{{"key": "mlflow.runName", "value": "b"}}}, invalid, "Both 'run_name' argument and 'mlflow.runName' tag are specified"},
		{"GET", "runs/get?run_id=0000", nil, absent, "Run with id=0000 not found"},
		{"POST", "runs/set-tag", obj{"run_id": gone, "key": "k", "value": "v"}, invalid, "must be in the 'active' state. Current state is deleted."},
		{"POST", "runs/log-parameter", obj{"run_id": run, "key": "p", "value": "2"}, invalid, "Changing param values is not allowed. Param with key='p' was already logged with value='1'"},
		{"POST", "runs/log-batch", obj{"run_id": run, "params": []obj{{"key": "d", "value": "1"}, {"key": "d", "value": "1"}}}, invalid, "Duplicate parameter keys have been submitted: ['d']"},
		{"POST", "runs/log-metric", obj{"run_id": run, "key": "a*b", "value": 1, "timestamp": 1}, invalid, `Invalid value "a*b" for parameter 'name' supplied: Names may only contain alphanumerics`},
		{"POST", "runs/log-parameter", obj{"run_id": run, "key": "a//b", "value": "1"}, invalid, "This name would resolve to 'a/b'"},
		{"POST", "runs/log-parameter", obj{"run_id": run, "key": long, "value": "1"}, invalid, "'Param key' exceeds the maximum length of 250 characters"},
		{"POST", "runs/log-metric", obj{"run_id": run, "key": long, "value": 1, "timestamp": 1}, invalid, "exceeds the maximum length of 250 characters"},
		{"POST", "runs/log-metric", obj{"run_id": run, "key": "m", "value": 1, "timestamp": -1}, invalid, "Invalid value -1 for parameter 'timestamp' supplied: metric 'm' (value=1.0). Timestamp must be a nonnegative long (64-bit integer) "},
		{"POST", "runs/log-metric", obj{"run_id": run, "key": "m", "value": "one", "timestamp": 1}, invalid, "Invalid value \"one\" for parameter 'value'"},
		{"POST", "runs/log-metric", `{"run_id": "` + run + `", "key": "m", "value": 1, "timestamp": 1, "step": 99999999999999999999}`, invalid, "for parameter 'step'"},
		{"POST", "runs/log-metric", obj{"run_id": run, "key": "m", "value": 1}, invalid, "Missing value for required parameter 'timestamp'"},
		{"POST", "runs/log-batch", obj{"run_id": run, "metrics": []obj{{"key": "m", "timestamp": 1}}}, invalid, "Missing value for required parameter 'metrics[0].value'"},
		{"POST", "runs/log-batch", obj{"run_id": run, "metrics": []obj{{"key": "m", "value": 1, "timestamp": 1, "step": "x"}}}, invalid, "for parameter 'metrics'"},
		{"POST", "runs/log-batch", obj{"run_id": run, "params": many(101, "p")}, invalid, "A batch logging request can contain at most 100 params. Got 101 params."},
		{"POST", "runs/log-batch", obj{"run_id": run, "tags": many(101, "t")}, invalid, "at most 100 tags"},
		{"POST", "runs/delete-tag", obj{"run_id": run, "key": "zz"}, absent, "No tag with name: zz in run with id " + run},
		{"POST", "runs/search", obj{"experiment_ids": []string{"0"}, "max_results": 0}, invalid, "Invalid value 0 for parameter 'max_results' supplied. It must be a positive integer"},
		{"POST", "runs/search", obj{"experiment_ids": []string{"0"}, "page_token": "evil"}, invalid, "Invalid page token"},
		{"POST", "runs/search", obj{"experiment_ids": []string{"0"}, "page_token": "!"}, invalid, "Invalid page token, could not base64-decode"},
		{"POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": "metrics.a > 1 OR metrics.b > 1"}, invalid, "Invalid clause(s) in filter string: 'OR'"},
		{"POST", "runs/search", obj{"experiment_ids": []string{"0"}, "filter": "attribute.zzz = 'x'"}, invalid, "Invalid attribute key 'zzz' specified. Valid keys are '{"},
		{"POST", "runs/search", obj{"experiment_ids": []string{"0"}, "order_by": []string{"a b c"}}, invalid, "Invalid order_by clause 'a b c'"},
		{"GET", "artifacts/list?path=../x&run_id=" + run, nil, invalid, "Invalid path"},
		{"GET", "/get-artifact?path=%2Fetc%2Fpasswd&run_id=" + run, nil, invalid, "Invalid path"},
		{"GET", "/get-artifact?path=none&run_id=" + run, nil, absent, "No such artifact: 'none'"},
		{"GET", "/api/2.0/mlflow-artifacts/artifacts/0/" + run + "/artifacts/..%2f..%2fx", nil, invalid, "Invalid path"},
		{"GET", "/api/2.0/mlflow-artifacts/artifacts/0/%2e%2e/x", nil, invalid, "Invalid path"},
		{"POST", "registered-models/create", obj{"name": "M"}, exists, "Registered Model (name=M) already exists."},
		{"POST", "registered-models/create", obj{"name": "a/b"}, invalid, "Invalid model name 'a/b'. Names cannot contain '/' or ':'."},
		{"GET", "registered-models/get?name=zz", nil, absent, "Registered Model with name=zz not found"},
		{"GET", "model-versions/get?name=M&version=9", nil, absent, "Model Version (name=M, version=9) not found"},
		{"GET", "model-versions/get?name=M&version=x", nil, invalid, "Parameter 'version' must be an integer, got 'x'."},
		{"GET", "registered-models/alias?name=M&alias=none", nil, invalid, "Registered model alias none not found."},
		{"POST", "registered-models/alias", obj{"name": "M", "alias": "Latest", "version": "1"}, invalid, "'latest' alias name (case insensitive) is reserved."},
		{"POST", "registered-models/alias", obj{"name": "M", "alias": "v1", "version": "1"}, invalid, "Version alias name 'v1' is reserved."},
		{"POST", "model-versions/transition-stage", obj{"name": "M", "version": "1", "stage": "bogus"}, invalid, "Invalid Model Version stage: bogus. Value must be one of None, Staging, Production, Archived."},
		{"POST", "model-versions/create", obj{"name": "M", "source": "/etc"}, invalid, "To use a local path as a model version source, the run_id request parameter has to be specified"},
		{"POST", "model-versions/create", obj{"name": "M", "source": "mlflow-artifacts:/a/../../b"}, invalid, "an absolute path must be provided without relative path references present"},
		{"GET", "logged-models/m-none", nil, absent, "Logged model with ID 'm-none' not found."},
		{"POST", "logged-models", obj{"experiment_id": "0", "name": "a/b"}, invalid, "Invalid model name ('a/b') provided."},
		{"GET", "runs/create", nil, "ENDPOINT_NOT_FOUND", "use POST"},
	} {
		status, m := s.do(c.method, c.path, c.body)
		message, _ := m["message"].(string)
		if m["error_code"] != c.code || !strings.Contains(message, c.says) || status < 400 || status >= 500 {
			t.Errorf("%s %s %.80v\n got %d %v %.300q\nwant %s %q", c.method, c.path, c.body, status, m["error_code"], message, c.code, c.says)
		}
	}
	for kind, says := range map[string]string{"": "Content-Type header is missing.", "text/plain": "Content-Type must be one of ['application/json']."} {
		for _, path := range []string{"runs/create", "runs/log-batch"} {
			if code, _, out := s.raw("POST", "/api/2.0/mlflow/"+path, kind, "{}"); code != http.StatusBadRequest || !strings.Contains(out, says) {
				t.Errorf("%s of type %q: %d %s", path, kind, code, out)
			}
		}
	}
	for _, n := range []string{"+1", "01", "-01", "00", "1.", ".5", "1e", "1e+", "--1", "1-1", "0x1", "1_0"} {
		for _, field := range []string{"value", "timestamp", "step"} {
			metric := obj{"key": "m", "value": "V", "timestamp": "T", "step": "S"}
			metric[field] = "N"
			raw, err := json.Marshal(metric)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer(`"N"`, n, `"V"`, "-0.5e+1", `"T"`, "10", `"S"`, "0").Replace(string(raw))
			s.want(400, "POST", "runs/log-batch", `{"run_id": "`+run+`", "metrics": [`+text+`]}`)
			s.want(400, "POST", "runs/log-metric", `{"run_id": "`+run+`", `+text[1:])
		}
	}
	s.must("POST", "runs/log-batch", `{"run_id": "`+run+`", "metrics": [{"key": "n", "value": -0.5e+1, "timestamp": 10, "step": 0}]}`)
	if h := s.must("GET", "metrics/get-history?metric_key=m&run_id="+run, nil); len(h) != 0 {
		t.Errorf("refused metrics were kept: %v", h)
	}
}

// TestWhatIsNotServed: traces, work on prompts, webhooks and the gateway are refused with a 404 in
// MLflow's shape that says what this server does not have.
func TestWhatIsNotServed(t *testing.T) {
	s := start(t, t.TempDir())
	for _, c := range [][2]string{
		{"GET", "/api/2.0/mlflow/traces/x"},
		{"POST", "/api/3.0/mlflow/traces"},
		{"POST", "/api/3.0/mlflow/traces/search"},
		{"POST", "/api/3.0/mlflow/traces/link-prompts"},
		{"POST", "/api/3.0/mlflow/prompt-optimization/jobs"},
		{"POST", "/ajax-api/2.0/mlflow/runs/create-promptlab-run"},
		{"POST", "/api/2.0/mlflow/webhooks"},
		{"GET", "/api/2.0/mlflow/webhooks"},
		{"GET", "/api/2.0/mlflow/gateway-proxy"},
		{"GET", "/api/2.0/endpoints/"},
	} {
		status, m := s.do(c[0], c[1], nil)
		if says, _ := m["message"].(string); status != http.StatusNotFound || m["error_code"] != "ENDPOINT_NOT_FOUND" || !strings.Contains(says, "this server has no traces, prompt optimization, webhooks, evaluation datasets or gateway") {
			t.Errorf("%s %s: %d %v", c[0], c[1], status, m)
		}
	}
}
