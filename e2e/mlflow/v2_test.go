package mlflow_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/serve/worker"
)

// references are models of several signatures, served by MLflow itself and by our worker.
type references struct {
	t           *testing.T
	python, dir string
	real        string // address of MLflow's server; the name of a model follows
}

func startReferences(t *testing.T) *references {
	t.Helper()
	r := &references{t: t, python: world.Python(t, clients["3.17.2"]...), dir: t.TempDir()}
	port := r.run([]string{"reference.py", r.dir})
	r.real = "http://127.0.0.1:" + port
	return r
}

// run starts a program, which ends with the test, and returns its first line.
func (r *references) run(args []string, env ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(r.t.Context()), r.python, args...)
	cmd.Env = append(append(os.Environ(), "MLFLOW_DISABLE_TELEMETRY=true", "GIT_PYTHON_REFRESH=quiet"), env...)
	cmd.Stderr = r.t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	var read sync.WaitGroup
	r.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		read.Wait()
		cmd.Wait()
	})
	first, err := lines.ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	read.Go(func() { io.Copy(r.t.Output(), lines) }) // for people
	return strings.TrimSpace(first)
}

// own starts our worker for a model.
func (r *references) own(name string, env ...string) string {
	r.t.Helper()
	// As in a replica: the model in a folder of its name and version.
	at := filepath.Join(r.t.TempDir(), "azureml-models", name, "3")
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(r.dir, name), at); err != nil {
		r.t.Fatal(err)
	}
	line := r.run([]string{"-c", worker.Boot}, append(env, worker.SourceVariable+"="+worker.Source(), "AZUREML_MODEL_DIR="+at, "SERVICE_NAME=houses")...)
	port, ok := strings.CutPrefix(line, "berth-worker: ports ")
	if !ok {
		r.t.Fatalf("the first line is %q", line)
	}
	address := "http://127.0.0.1:" + port
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(address + "/")
		if err == nil {
			resp.Body.Close()
			return address
		}
		if time.Now().After(deadline) {
			r.t.Fatal(err)
		}
	}
}

// ask sends a request; a body that is not empty is JSON unless another type is given.
func ask(t *testing.T, method, url, body, kind string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true // MLflow's server closes connections after bodies that it cannot read
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// same says whether two texts are the same document, or the same text.
func same(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	return reflect.DeepEqual(x, y)
}

// deep is a list in a list, and so on.
var deep = strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)

// TestOpenInference: an MLflow model answers the open inference protocol (v2), whatever its
// signature, and what is wrong with a request is said as the protocol says it.
func TestOpenInference(t *testing.T) {
	r := startReferences(t)
	const abc = `{"name":"a","shape":[2],"datatype":"FP64","data":[1.5,2]},{"name":"b","shape":[2,1],"datatype":"INT64","data":[[1],[2]]},{"name":"c","shape":[2],"datatype":"BYTES","data":["x","é"]}`
	const sums = `{"name":"sum","datatype":"FP64","shape":[2],"data":[2.5,4]}`
	const answer = `{"model_name":"columns","model_version":"3","outputs":[` + sums + `,{"name":"word","datatype":"BYTES","shape":[2],"data":["X","É"]}]}`
	wrong := func(text string) string { return "!" + text }
	for model, exchanges := range map[string][]struct {
		method, path, body string
		status             int
		want               string // a document, or after ! a part of the error
	}{
		"columns": {
			{"GET", "/v2", "", 200, `{"name":"berth-worker","version":"1","extensions":["model_repository"]}`},
			{"GET", "/v2/health/live", "", 200, ""},
			{"GET", "/v2/health/ready", "", 200, ""},
			{"GET", "/v2/models/columns/ready", "", 200, ""},
			{"GET", "/v2/models/columns/versions/3/ready", "", 200, ""},
			{"GET", "/v2/models/houses/ready", "", 200, ""},
			{"POST", "/v2/repository/index", "{}", 200, `[{"name":"houses","version":"3","state":"READY","reason":""},{"name":"columns","version":"3","state":"READY","reason":""}]`},
			{"GET", "/v2/models/columns", "", 200, `{"name":"columns","versions":["3"],"platform":"mlflow",
				"inputs":[{"name":"a","datatype":"FP64","shape":[-1]},{"name":"b","datatype":"INT64","shape":[-1]},{"name":"c","datatype":"BYTES","shape":[-1]}],
				"outputs":[{"name":"sum","datatype":"FP64","shape":[-1]},{"name":"word","datatype":"BYTES","shape":[-1]}]}`},
			{"GET", "/v2/models/other", "", 404, wrong("no model other")},
			{"GET", "/v2/models/columns/versions/4", "", 404, wrong("no version 4")},
			{"GET", "/v2/models/columns/versions/4/ready", "", 404, wrong("no version 4")},
			{"POST", "/v2/models/other/infer", `{"inputs":[` + abc + `]}`, 404, wrong("no model other")},
			{"GET", "/v2/models", "", 404, wrong("/v2/models")},
			{"GET", "/v2/models/columns/other", "", 404, wrong("other")},
			{"GET", "/v2/models/columns/infer", "", 405, wrong("POST")},
			{"POST", "/v2/models/columns/infer", `{"inputs":[` + abc + `]}`, 200, answer},
			{"POST", "/v2/models/columns/versions/3/infer", `{"id":"42","inputs":[` + abc + `]}`, 200, strings.Replace(answer, `"outputs"`, `"id":"42","outputs"`, 1)},
			{
				"POST", "/v2/models/columns/infer", `{"parameters":{"factor":2,"unknown":1},"inputs":[` + abc + `],"outputs":[{"name":"sum"}]}`, 200,
				`{"model_name":"columns","model_version":"3","outputs":[` + strings.Replace(sums, "2.5,4", "5,8", 1) + `]}`,
			},
			{"POST", "/v2/models/columns/infer", `{"inputs":[` + abc + `],"outputs":[{"name":"other"}]}`, 400, wrong("no output other")},
			{"POST", "/v2/models/columns/infer", `{"inputs":[` + strings.Replace(abc, "[2,1]", "[1]", 1) + `]}`, 400, wrong("input b: data")},
			{"POST", "/v2/models/columns/infer", `{"inputs":[{"name":"a","shape":[2],"datatype":"FP64","data":[1,2]}]}`, 400, wrong("b")},
			{"POST", "/v2/models/columns/infer", `{"inputs":[{"name":"all","shape":[1,2],"datatype":"FP64","data":[1,2]}]}`, 400, wrong("2 columns")},
			{"POST", "/v2/models/columns/infer", `{"parameters":{"factor":"x"},"inputs":[` + abc + `]}`, 400, wrong("factor")},
			{"POST", "/v2/models/columns/infer", `not JSON`, 400, wrong("not JSON")},
			{"POST", "/v2/models/columns/infer", deep, 400, wrong("deep")},
			{"POST", "/v2/models/columns/infer", `[]`, 400, wrong("inputs")},
			{"POST", "/v2/models/columns/infer", `{"inputs":[]}`, 400, wrong("inputs")},
			{"POST", "/v2/models/columns/infer", `{"inputs":[1]}`, 400, wrong("inputs[0]")},
			{"POST", "/v2/models/columns/infer", `{"id":1,"inputs":[` + abc + `]}`, 400, wrong("id must")},
			{"POST", "/v2/models/columns/infer", `{"inputs":[` + abc + "," + abc + `]}`, 400, wrong("same name")},
			{"POST", "/v2/models/columns/infer", `{"inputs":[{"name":"a","shape":[2],"datatype":"FP64","parameters":{"binary_data_size":16}}]}`, 400, wrong("binary")},
		},
		"matrix": {
			{"GET", "/v2/models/matrix", "", 200, `{"name":"matrix","versions":["3"],"platform":"mlflow","inputs":[{"name":"input-1","datatype":"FP32","shape":[-1,3]}],"outputs":[{"name":"output-1","datatype":"FP32","shape":[-1]}]}`},
			{
				"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[2,3],"datatype":"FP32","data":[1,2,3,4,5,6.5]}]}`, 200,
				`{"model_name":"matrix","model_version":"3","outputs":[{"name":"output-1","datatype":"FP32","shape":[2],"data":[6,15.5]}]}`,
			},
			{
				"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[2,3],"datatype":"FP32","data":[[1,2,3],[4,5,6.5]]}]}`, 200,
				`{"model_name":"matrix","model_version":"3","outputs":[{"name":"output-1","datatype":"FP32","shape":[2],"data":[6,15.5]}]}`,
			},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]}]}`, 400, wrong("shape")},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[2,3],"datatype":"FP32","data":[[1,2],[3,4],[5,6]]}]}`, 400, wrong("not nested")},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[2,3],"datatype":"FP32","data":[[1,2,3],4,5,6]}]}`, 400, wrong("not nested")},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[2,-3],"datatype":"FP32","data":[1]}]}`, 400, wrong("shape must")},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[9999999,9999999],"datatype":"FP32","data":[1]}]}`, 400, wrong("too large")},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[1,3],"datatype":"FP32","data":[1,1e300,1]}]}`, 400, wrong("too large for FP32")},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[1,3],"datatype":"FP32","data":[1,null,1]}]}`, 400, wrong("null")},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[1,3],"datatype":"BF16","data":[1,1,1]}]}`, 400, wrong("datatype must be one of")},
			{"POST", "/v2/models/matrix/infer", `{"inputs":[{"name":"any","shape":[1,3],"datatype":"FP32","data":[1,1,1]},{"name":"two","shape":[1],"datatype":"FP32","data":[1]}]}`, 400, wrong("one input")},
		},
		"named": {
			{
				"POST", "/v2/models/named/infer", `{"inputs":[{"name":"y","shape":[2],"datatype":"FP64","data":[1,2]},{"name":"x","shape":[2,2],"datatype":"FP64","data":[1,2,3,4]}]}`, 200,
				`{"model_name":"named","model_version":"3","outputs":[{"name":"total","datatype":"FP64","shape":[2],"data":[4,9]},{"name":"large","datatype":"BOOL","shape":[2],"data":[false,true]}]}`,
			},
			{"POST", "/v2/models/named/infer", `{"inputs":[{"name":"y","shape":[2],"datatype":"FP64","data":[1,2]}]}`, 400, wrong("x")},
		},
		"bare": {
			{"GET", "/v2/models/bare", "", 200, `{"name":"bare","versions":["3"],"platform":"mlflow","inputs":[],"outputs":[]}`},
			{
				"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"t","shape":[1,2,2],"datatype":"UINT8","data":[0,2,4,255]}]}`, 200,
				`{"model_name":"bare","model_version":"3","outputs":[{"name":"output-1","datatype":"FP64","shape":[1,2,2],"data":[0,1,2,127.5]}]}`,
			},
			{
				"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"t","shape":[2],"datatype":"FP16","data":[1,2]}]}`, 200,
				`{"model_name":"bare","model_version":"3","outputs":[{"name":"output-1","datatype":"FP16","shape":[2],"data":[0.5,1]}]}`,
			},
			{
				"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"p","shape":[2],"datatype":"BOOL","data":[true,false]},{"name":"q","shape":[2],"datatype":"BYTES","data":["x","y"]}]}`, 200,
				`{"model_name":"bare","model_version":"3","outputs":[{"name":"output-1","datatype":"BYTES","shape":[2],"data":["p [True, False]","q ['x', 'y']"]}]}`,
			},
			{
				"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"p","shape":[1,2],"datatype":"INT8","data":[-128,127]},{"name":"q","shape":[1],"datatype":"UINT64","data":[18446744073709551615]}]}`, 200,
				`{"model_name":"bare","model_version":"3","outputs":[{"name":"output-1","datatype":"BYTES","shape":[2],"data":["p [[-128, 127]]","q [18446744073709551615]"]}]}`,
			},
			{"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"t","shape":[1],"datatype":"INT8","data":[128]}]}`, 400, wrong("from -128 to 127")},
			{"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"t","shape":[1],"datatype":"UINT16","data":[-1]}]}`, 400, wrong("from 0 to 65535")},
			{"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"t","shape":[1],"datatype":"INT32","data":[1.5]}]}`, 400, wrong("whole numbers")},
			{"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"t","shape":[1],"datatype":"BOOL","data":[1]}]}`, 400, wrong("true and false")},
			{"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"t","shape":[1],"datatype":"BYTES","data":[1]}]}`, 400, wrong("strings")},
			{"POST", "/v2/models/bare/infer", `{"inputs":[{"name":"p","shape":[2],"datatype":"BOOL","data":[true,false]},{"name":"q","shape":[1],"datatype":"BYTES","data":["x"]}]}`, 400, wrong("same number of rows")},
		},
		"days": {
			{
				"POST", "/v2/models/days/infer", `{"inputs":[{"name":"day","shape":[1],"datatype":"BYTES","data":["2026-01-31T12:00:00"]},{"name":"bytes","shape":[1],"datatype":"BYTES","parameters":{"content_type":"base64"},"data":["aGk="]},
				{"name":"n","shape":[1],"datatype":"INT32","data":[7]}]}`, 200,
				`{"model_name":"days","model_version":"3","outputs":[{"name":"output-1","datatype":"BYTES","shape":[1],"data":["2026-01-31T12:00:00 hi 7"]}]}`,
			},
			{"POST", "/v2/models/days/infer", `{"inputs":[{"name":"day","shape":[1],"datatype":"BYTES","data":["noon"]},{"name":"bytes","shape":[1],"datatype":"BYTES","data":["hi"]},{"name":"n","shape":[1],"datatype":"INT32","data":[7]}]}`, 400, wrong("dates")},
			{"POST", "/v2/models/days/infer", `{"inputs":[{"name":"bytes","shape":[1],"datatype":"BYTES","parameters":{"content_type":"base64"},"data":["%%"]}]}`, 400, wrong("base64")},
		},
		"odd": {
			{"POST", "nan", "", 200, `{"name":"output-1","datatype":"FP64","shape":[3],"data":[1.5,null,null]}`},
			{"POST", "ragged", "", 200, `{"name":"output-1","datatype":"BYTES","shape":[2],"data":["[1]","[2, 3]"]}`},
			{"POST", "none", "", 200, `{"name":"output-1","datatype":"BYTES","shape":[2],"data":["a",null]}`},
			{"POST", "text", "", 200, `{"name":"output-1","datatype":"BYTES","shape":[1],"data":["alone"]}`},
			{"POST", "number", "", 200, `{"name":"output-1","datatype":"INT64","shape":[1],"data":[3]}`},
			{"POST", "series", "", 200, `{"name":"output-1","datatype":"BOOL","shape":[2],"data":[true,false]}`},
			{"POST", "records", "", 200, `{"name":"a","datatype":"INT64","shape":[1],"data":[1]},{"name":"b","datatype":"BYTES","shape":[1],"data":["x"]}`},
			{"POST", "raises", "", 400, wrong("division by zero")},
			{"POST", "dates", "", 200, `{"name":"day","datatype":"BYTES","shape":[1],"data":["2026-01-31T00:00:00.000000"]}`},
		},
	} {
		t.Run(model, func(t *testing.T) {
			at := r.own(model)
			for _, x := range exchanges {
				if model == "odd" {
					x.path, x.body = "/v2/models/odd/infer", `{"inputs":[{"name":"what","shape":[1],"datatype":"BYTES","data":["`+x.path+`"]}]}`
					if x.status == http.StatusOK {
						x.want = `{"model_name":"odd","model_version":"3","outputs":[` + x.want + `]}`
					}
				}
				kind := ""
				if x.body != "" {
					kind = "application/json"
				}
				status, body := ask(t, x.method, at+x.path, x.body, kind)
				good := same(body, x.want)
				if part, ok := strings.CutPrefix(x.want, "!"); ok {
					var d map[string]string
					good = json.Unmarshal([]byte(body), &d) == nil && len(d) == 1 && strings.Contains(d["error"], part)
				}
				if status != x.status || !good {
					t.Errorf("%s %s %.200s: %d %s, want %d %s", x.method, x.path, x.body, status, body, x.status, x.want)
				}
			}
		})
	}
}

// TestSlowModel: a model that takes longer than the request may is interrupted, and the worker goes
// on.
func TestSlowModel(t *testing.T) {
	r := startReferences(t)
	at := r.own("odd", "SCORING_TIMEOUT_MS=500")
	for _, path := range []string{"/invocations", "/score"} {
		code, body := ask(t, "POST", at+path, `{"dataframe_records":[{"what":"slow"}]}`, "application/json")
		if code != http.StatusInternalServerError || !strings.Contains(body, "Scoring timeout after 500 ms") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := ask(t, "POST", at+"/invocations", `{"dataframe_records":[{"what":"text"}]}`, "application/json"); code != http.StatusOK {
		t.Errorf("afterwards: %d %s", code, body)
	}
}
