package mlflow_test

import (
	"fmt"
	"net/http"
	"strings"
)

// raw is a body that is sent as it is, with any content type, or none where it is empty.
type raw struct{ kind, body string }

// refused sends something to Berth alone that a real server accepts, but does not keep as it was
// sent, or that it refuses with the error of its database.
func (p *pair) refused(method, path string, body any) {
	p.t.Helper()
	p.n++
	status, answer := p.own.do(method, path, body)
	if m, _ := answer.(o); status != http.StatusBadRequest || m["error_code"] != "INVALID_PARAMETER_VALUE" {
		p.t.Errorf("%s %s %.300v: %d %.300v", method, path, body, status, answer)
		return
	}
	p.same++
}

// badInput are numbers, names, batches and bodies that a server must refuse or keep as they are.
// After each part both servers are asked what they have: nothing is half-written.
func (p *pair) badInput() {
	p.ask("POST", "experiments/create", o{"name": "bad input"}, "bad", "experiment_id")
	p.ask("POST", "runs/create", o{"experiment_id": "$bad", "start_time": 1, "run_name": "r"}, "badrun", "run", "info", "run_id")
	p.ask("POST", "runs/log-parameter", o{"run_id": "$badrun", "key": "lr", "value": "1"}, "")
	p.badNumbers()
	p.badNames()
	p.badBatches()
	p.badBodies()
	p.badPaths()
	p.deleted()
}

func (p *pair) lookAtBadRun() {
	p.ask("GET", "runs/get?run_id=$badrun", nil, "")
	for _, key := range []string{"m", "k0", "ok"} {
		p.ask("GET", "metrics/get-history?run_id=$badrun&metric_key="+key, nil, "")
	}
}

func (p *pair) badNumbers() {
	for i, value := range []string{`"NaN"`, `"Infinity"`, `"-Infinity"`, `1e308`, `-1e308`, `5e-324`, `"1.5"`, `"x"`, `null`, `[]`, `{}`, `""`} {
		p.ask("POST", "runs/log-metric", raw{"application/json", fmt.Sprintf(`{"run_id": "$badrun", "key": "m", "timestamp": %d, "step": 1, "value": %s}`, i, value)}, "")
	}
	p.refused("POST", "runs/log-metric", raw{"application/json", `{"run_id": "$badrun", "key": "m", "timestamp": 1, "step": 1, "value": true}`})
	step := func(n string) raw {
		return raw{"application/json", `{"run_id": "$badrun", "key": "k0", "timestamp": 1, "value": 1, "step": ` + n + `}`}
	}
	timestamp := func(n string) raw {
		return raw{"application/json", `{"run_id": "$badrun", "key": "k0", "step": 1, "value": 1, "timestamp": ` + n + `}`}
	}
	batch := func(n string) raw {
		return raw{"application/json", `{"run_id": "$badrun", "metrics": [{"key": "ok", "timestamp": 1, "value": 1, "step": 1}, {"key": "k0", "timestamp": 1, "value": 1, "step": ` + n + `}]}`}
	}
	for _, n := range []string{"9223372036854775807", "-9223372036854775808", `"7"`, "null"} {
		p.ask("POST", "runs/log-metric", step(n), "")
		p.ask("POST", "runs/log-metric", timestamp(n), "")
		p.ask("POST", "runs/log-batch", batch(n), "")
	}
	for _, n := range []string{`"x"`, "[]"} {
		p.ask("POST", "runs/log-metric", step(n), "")
		p.ask("POST", "runs/log-metric", timestamp(n), "")
		p.refused("POST", "runs/log-batch", batch(n))
	}
	// A real server takes these for 0.
	for _, n := range []string{"9223372036854775808", "-9223372036854775809", "1e30", "99999999999999999999999", "1.5", "true"} {
		p.refused("POST", "runs/log-metric", step(n))
		p.refused("POST", "runs/log-metric", timestamp(n))
		p.refused("POST", "runs/log-batch", batch(n))
	}
	p.lookAtBadRun()
}

func (p *pair) badNames() {
	long := strings.Repeat("k", 10_000)
	for _, key := range []string{long, long[:250], long[:251], "", " ", ".", "..", "a//b", "a/./b", "../a", "a/", "ä", "a\nb", "a\x00b", "a\\b", "C:x"} {
		p.ask("POST", "runs/log-metric", o{"run_id": "$badrun", "key": key, "value": 1, "timestamp": 1}, "")
		p.ask("POST", "runs/log-parameter", o{"run_id": "$badrun", "key": key, "value": "1"}, "")
		p.ask("POST", "runs/set-tag", o{"run_id": "$badrun", "key": key, "value": "1"}, "")
		p.ask("POST", "runs/log-batch", o{"run_id": "$badrun", "params": []o{{"key": "ok" + key, "value": "1"}, {"key": key, "value": "2"}}}, "")
	}
	p.ask("POST", "runs/log-parameter", o{"run_id": "$badrun", "key": "value", "value": strings.Repeat("v", 10_000)}, "")
	p.ask("POST", "runs/set-tag", o{"run_id": "$badrun", "key": "value", "value": strings.Repeat("v", 10_000)}, "")
	p.ask("POST", "experiments/create", o{"name": long}, "")
	p.refused("POST", "registered-models/create", o{"name": long}) // SQLite takes any length, PostgreSQL 256
	p.lookAtBadRun()
}

func (p *pair) badBatches() {
	metrics := func(n int) []o {
		out := make([]o, n)
		for i := range out {
			out[i] = o{"key": fmt.Sprint("b", i), "value": 1, "timestamp": 1}
		}
		return out
	}
	for _, b := range []o{
		{"params": []o{{"key": "new", "value": "1"}, {"key": "lr", "value": "another"}}, "metrics": metrics(1), "tags": many(1)},
		{"metrics": metrics(1001)},
		{"metrics": metrics(950), "params": many(51)},
		{"metrics": metrics(900), "params": many(50), "tags": many(51)},
		{"tags": []o{{"key": "huge", "value": strings.Repeat("v", 1_000_001)}}},
		{"metrics": "x"},
		{"metrics": o{}},
		{"metrics": []string{"x"}},
		{"params": []o{{}}},
		{"params": []o{{"key": "p"}}},
		{"tags": []o{{"value": "v"}}},
		{"metrics": []o{{"key": "ok", "value": 1, "timestamp": 1}, {"key": "a*b", "value": 1, "timestamp": 1}}},
		{"metrics": []o{{"key": "ok", "value": 1, "timestamp": 1}}, "params": []o{{"key": "a*b", "value": "1"}}},
	} {
		b["run_id"] = "$badrun"
		p.ask("POST", "runs/log-batch", b, "")
		p.ask("GET", "runs/get?run_id=$badrun", nil, "")
	}
	p.lookAtBadRun()
}

func (p *pair) badBodies() {
	good := `{"run_id": "$badrun", "key": "ok", "value": 1, "timestamp": 1}`
	for _, path := range []string{"runs/log-metric", "runs/log-batch", "runs/create", "runs/search", "experiments/create", "registered-models/create"} {
		for _, b := range []raw{
			{"application/json", ""},
			{"application/json", "{"},
			{"application/json", "[]"},
			{"application/json", "null"},
			{"application/json", "3"},
			{"application/json", `"text"`},
			{"application/json", `{"run_id": }`},
			{"application/json", "\xff\xfe"},
			{"text/plain", good},
			{"application/x-www-form-urlencoded", "run_id=$badrun"},
			{"nonsense", good},
			{"", good},
		} {
			if path == "runs/create" && b.kind == "application/json" { // a real server says what its database says
				p.refused("POST", path, b)
			} else {
				p.ask("POST", path, b, "")
			}
		}
	}
	p.lookAtBadRun()
}

func (p *pair) badPaths() {
	for _, path := range []string{"..", "../x", "a/../../x", "/etc", "%2e%2e%2fx", "..%2f..%2fetc", "%2fetc%2fpasswd", "file:///etc"} {
		p.ask("GET", "artifacts/list?run_id=$badrun&path="+path, nil, "")
	}
	for _, path := range []string{"a%5c..%5c..", "a%00b"} {
		p.refused("GET", "artifacts/list?run_id=$badrun&path="+path, nil)
	}
	p.ask("GET", "artifacts/list?run_id=nosuch", nil, "")
	p.ask("GET", "artifacts/list", nil, "")
}

// deleted is what becomes of requests to runs and experiments that were deleted.
func (p *pair) deleted() {
	p.ask("POST", "runs/create", o{"experiment_id": "$bad", "start_time": 2, "run_name": "other"}, "badother", "run", "info", "run_id")
	p.ask("POST", "runs/delete", o{"run_id": "$badrun"}, "")
	changes := func(id string) {
		for _, x := range []struct {
			path string
			body o
		}{
			{"log-metric", o{"key": "m", "value": 1, "timestamp": 1}},
			{"log-parameter", o{"key": "q", "value": "1"}},
			{"set-tag", o{"key": "t", "value": "1"}},
			{"delete-tag", o{"key": "t"}},
			{"log-batch", o{"metrics": []o{{"key": "m", "value": 1, "timestamp": 1}}}},
			{"update", o{"status": "FINISHED", "end_time": 3}},
			{"log-inputs", o{"datasets": []o{{"dataset": o{"name": "d", "digest": "1", "source_type": "s", "source": "x"}}}}},
		} {
			x.body["run_id"] = id
			p.ask("POST", "runs/"+x.path, x.body, "")
		}
	}
	changes("$badrun")
	changes("nosuch")
	p.ask("POST", "runs/delete", o{"run_id": "$badrun"}, "")
	p.ask("POST", "runs/restore", o{"run_id": "$badrun"}, "")
	p.ask("POST", "runs/restore", o{"run_id": "$badrun"}, "")
	p.lookAtBadRun()
	p.ask("POST", "experiments/delete", o{"experiment_id": "$bad"}, "")
	changes("$badother")
	for _, x := range []struct {
		path string
		body o
	}{
		{"runs/create", o{"experiment_id": "$bad"}},
		{"experiments/update", o{"experiment_id": "$bad", "new_name": "renamed"}},
		{"experiments/delete", o{"experiment_id": "$bad"}},
		{"experiments/set-experiment-tag", o{"experiment_id": "$bad", "key": "k", "value": "v"}},
		{"experiments/create", o{"name": "bad input"}},
		{"runs/search", o{"experiment_ids": []string{"$bad"}}},
	} {
		p.ask("POST", x.path, x.body, "")
	}
	for _, path := range []string{"experiments/delete", "experiments/restore", "experiments/update"} {
		p.ask("POST", path, o{"experiment_id": "987654", "new_name": "x"}, "")
	}
	p.ask("POST", "experiments/restore", o{"experiment_id": "$bad"}, "")
	p.ask("GET", "experiments/get?experiment_id=$bad", nil, "")
}
