package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
)

// counting is a script that writes down each file that run was given, where the test sees it.
const counting = `
import os, time

LEDGER = os.environ["LEDGER"]

def init():
    print("init")

def run(mini_batch):
    rows = []
    for path in mini_batch:
        name = os.path.basename(path)
        with open(LEDGER, "a") as f:
            f.write(f"{name} {os.getpid()}\n")
        text = open(path).read().strip()
        if text == "raise":
            raise ValueError("bad file")
        if text == "hang":
            time.sleep(600)
        if text == "die":
            os.kill(os.getpid(), 9)
        if text == "killall":
            os.kill(os.getppid(), 9)
        if text == "none":
            continue
        if text.startswith("gate "):
            while not os.path.exists(text[5:]):
                time.sleep(0.01)
        rows.append([name, text, 'a "quoted", cell'])
    return rows
`

// scoring is a server with a folder of input files and a script.
type scoring struct {
	*server
	input, out, ledger string
	codeID             string
}

func newScoring(t *testing.T, s *server, script string) *scoring {
	t.Helper()
	own := *s
	own.t = t
	s = &own
	x := &scoring{server: s, input: t.TempDir(), out: t.TempDir(), ledger: filepath.Join(t.TempDir(), "ledger")}
	x.codeID = (&endpointServer{server: s}).code("counting-"+strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), script)
	return x
}

func (x *scoring) files(contents ...string) {
	x.t.Helper()
	for i, c := range contents {
		if err := os.WriteFile(filepath.Join(x.input, fmt.Sprintf("f%03d.txt", i)), []byte(c), 0o600); err != nil {
			x.t.Fatal(err)
		}
	}
}

// props is a job that scores the input; more changes it.
func (x *scoring) props(more map[string]any) map[string]any {
	p := map[string]any{
		"jobType": "Parallel", "computeId": x.ws + "/computes/local", "codeId": x.codeID, "inputData": "${{inputs.data}}",
		"miniBatchSize": 1, "maxConcurrencyPerInstance": 2, "environmentVariables": map[string]any{"LEDGER": x.ledger},
		"inputs":  map[string]any{"data": map[string]any{"jobInputType": "uri_folder", "uri": "file://" + x.input}},
		"outputs": map[string]any{"score": map[string]any{"jobOutputType": "uri_folder", "uri": "file://" + x.out}},
		"task":    map[string]any{"type": "run_function", "entry_script": "score.py", "output": "score", "output_file_name": "predictions.csv"},
	}
	for k, v := range more {
		p[k] = v
	}
	return p
}

func (x *scoring) begin(name string, more map[string]any) {
	x.t.Helper()
	if code, m := x.do("PUT", x.ws+"/jobs/"+name, map[string]any{"properties": x.props(more)}); code != 201 {
		x.t.Fatal(code, m)
	}
}

// state is what the server says of a job.
func (x *scoring) state(name string) (status string, st berth.JobState) {
	x.t.Helper()
	_, m := x.do("GET", x.ws+"/jobs/"+name, nil)
	p := m["properties"].(map[string]any)
	b, err := json.Marshal(p["berth"])
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	status, _ = p["status"].(string)
	return status, st
}

// end waits for a job.
func (x *scoring) end(name string) (status string, st berth.JobState) {
	x.t.Helper()
	x.eventually(name+" has ended", func() bool {
		status, st = x.state(name)
		return berth.JobStatus(status).Terminal()
	})
	return status, st
}

// scored is how often run was called with each file.
func (x *scoring) scored() map[string]int {
	x.t.Helper()
	b, err := os.ReadFile(x.ledger)
	if err != nil && !os.IsNotExist(err) {
		x.t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(b)) {
		n[strings.Fields(line)[0]]++
	}
	return n
}

// rows are the first cells of the result.
func (x *scoring) rows() []string {
	x.t.Helper()
	b, err := os.ReadFile(filepath.Join(x.out, "predictions.csv"))
	if err != nil {
		x.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		first, rest, _ := strings.Cut(line, ",")
		out = append(out, first)
		if !strings.HasSuffix(rest, `,"a ""quoted"", cell"`+"\n") {
			x.t.Errorf("the row %q is not CSV", line)
		}
	}
	if !sort.StringsAreSorted(out) {
		x.t.Errorf("the rows are not in the order of the files: %v", out)
	}
	return out
}

func numbers(n int) (out []string) {
	for i := range n {
		out = append(out, strconv.Itoa(i))
	}
	return out
}

func TestParallelJob(t *testing.T) {
	x := newScoring(t, start(t, shortHome(t)), counting)
	x.files(numbers(25)...)
	x.begin("all", map[string]any{"miniBatchSize": "3"})
	status, st := x.end("all")
	if status != "Completed" || st.Work == nil || st.Work.Batches != 9 || st.Work.Done != 9 || st.Work.Items != 25 || st.Work.FailedItems != 0 {
		log, _ := x.wait("all")
		t.Fatalf("%s %+v %+v\n%s", status, st, st.Work, log)
	}
	if rows := x.rows(); len(rows) != 25 {
		t.Errorf("rows %v", rows)
	}
	for name, n := range x.scored() {
		if n != 1 {
			t.Errorf("%s was scored %d times", name, n)
		}
	}
	if _, err := os.Stat(filepath.Join(x.out, "predictions.csv.part")); !os.IsNotExist(err) {
		t.Errorf("a half file is left: %v", err)
	}
}

// TestParallelFailures: what a script may do wrong ends clearly, and costs no more than it must.
func TestParallelFailures(t *testing.T) {
	s := start(t, shortHome(t))
	once := map[string]any{"max_retries": 1, "timeout": 1}
	often := map[string]any{"max_retries": 3, "timeout": 1} // what dies with the worker is tried again too
	for name, c := range map[string]struct {
		files  []string
		more   map[string]any
		status string
		says   string
		rows   int
		tries  map[string]int
	}{
		"raise":     {[]string{"1", "raise", "2"}, map[string]any{"retrySettings": once}, "Completed", "ValueError: bad file", 2, map[string]int{"f001.txt": 2}},
		"hang":      {[]string{"1", "hang", "2"}, map[string]any{"retrySettings": once}, "Completed", "run did not end within 1 seconds", 2, map[string]int{"f001.txt": 2}},
		"die":       {[]string{"1", "die", "2"}, map[string]any{"retrySettings": once}, "Completed", "SIGKILL", 2, map[string]int{"f001.txt": 2}},
		"killall":   {[]string{"1", "2", "killall"}, map[string]any{"retrySettings": often}, "Completed", "SIGKILL", 2, map[string]int{"f002.txt": 4}},
		"short":     {[]string{"1", "none", "2"}, nil, "Completed", "run returned 0 results for 1 items", 2, map[string]int{"f001.txt": 1}},
		"threshold": {[]string{"raise", "1", "raise"}, map[string]any{"retrySettings": once, "errorThreshold": 1}, "Failed", "error_threshold allows 1", -1, nil},
		"allowed":   {[]string{"raise", "1", "raise"}, map[string]any{"retrySettings": once, "errorThreshold": 2}, "Completed", "2 items failed", 1, nil},
		"batches":   {[]string{"raise", "1"}, map[string]any{"retrySettings": once, "miniBatchErrorThreshold": 0}, "Failed", "mini_batch_error_threshold allows 0", -1, nil},
		"all":       {[]string{"raise"}, map[string]any{"retrySettings": once}, "Failed", "the only mini-batch failed", -1, nil},
		"empty":     {nil, nil, "Failed", "the input data has no files", -1, nil},
		"absent":    {[]string{"1"}, map[string]any{"inputs": map[string]any{"data": map[string]any{"jobInputType": "uri_folder", "uri": "file:///nowhere/at/all"}}}, "Failed", "nowhere/at/all", -1, nil},
		"script":    {[]string{"1"}, map[string]any{"task": map[string]any{"entry_script": "other.py"}}, "Failed", "the code has no file other.py", -1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			x := newScoring(t, s, counting)
			x.files(c.files...)
			x.begin("j-"+name, c.more)
			status, st := x.end("j-" + name)
			if status != c.status || !strings.Contains(st.Reason, c.says) {
				log, _ := x.wait("j-" + name)
				t.Fatalf("%s: %s, want %s that says %q\n%s", status, st.Reason, c.status, c.says, log)
			}
			if c.rows >= 0 {
				if rows := x.rows(); len(rows) != c.rows {
					t.Errorf("rows %v, want %d", rows, c.rows)
				}
			}
			scored := x.scored()
			for file, n := range c.tries {
				if scored[file] != n {
					t.Errorf("%s was tried %d times, want %d", file, scored[file], n)
				}
			}
		})
	}
}

// TestParallelServerAway: results that were recorded are not asked for again after the server was
// away, and none is lost.
func TestParallelServerAway(t *testing.T) {
	home := shortHome(t)
	s := start(t, home)
	x := newScoring(t, s, counting)
	gate := filepath.Join(t.TempDir(), "gate")
	contents := numbers(12)
	contents[5], contents[6] = "gate "+gate, "gate "+gate
	x.files(contents...)
	x.begin("away", nil)
	x.eventually("both processes wait", func() bool { n := x.scored(); return n["f005.txt"] == 1 && n["f006.txt"] == 1 })
	s.stop()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x.server = start(t, home)
	if status, st := x.end("away"); status != "Completed" {
		log, _ := x.wait("away")
		t.Fatalf("%s: %s\n%s", status, st.Reason, log)
	}
	if rows := x.rows(); len(rows) != 12 {
		t.Errorf("rows %v", rows)
	}
	for name, n := range x.scored() {
		if n != 1 {
			t.Errorf("%s was scored %d times", name, n)
		}
	}
}

// TestParallelCancel: a canceled job ends, and what it had done is there.
func TestParallelCancel(t *testing.T) {
	x := newScoring(t, start(t, shortHome(t)), counting)
	x.files("1", "gate /nowhere/ever", "gate /nowhere/ever")
	x.begin("c", nil)
	x.eventually("both processes wait", func() bool { n := x.scored(); return n["f001.txt"] == 1 && n["f002.txt"] == 1 })
	if code, m := x.do("POST", x.ws+"/jobs/c/cancel", nil); code/100 != 2 {
		t.Fatal(code, m)
	}
	status, st := x.end("c")
	if status != "Canceled" {
		t.Errorf("%s: %s", status, st.Reason)
	}
	b, err := os.ReadFile(x.ledger)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.Fields(line)[1])
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is left", pid)
			}
		}
	}
}

// TestParallelRowsReplaced: a file that a user writes where the results of the job are is theirs,
// and nothing else goes with it when the job completes.
func TestParallelRowsReplaced(t *testing.T) {
	x := newScoring(t, start(t, shortHome(t)), counting)
	gate := filepath.Join(t.TempDir(), "gate")
	x.files("1", "gate "+gate)
	x.begin("r", nil)
	x.eventually("a process waits", func() bool { return x.scored()["f001.txt"] == 1 })
	_, store := x.do("GET", x.ws+"/datastores/workspaceartifactstore", nil)
	file := "/st.blob.berth/" + at(store, "properties", "containerName").(string) + "/ExperimentRun/dcid.r/user_logs/rows.csv"
	_, secret := x.do("POST", x.ws+"/datastores/workspaceartifactstore/listSecrets", nil)
	sign, _ := at(secret, "sasToken").(string)
	req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://berth"+file+"?"+sign, strings.NewReader("mine"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-ms-blob-type", "BlockBlob")
	resp, err := x.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatal(resp.Status)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, st := x.end("r"); status != "Completed" {
		t.Fatalf("%s: %s", status, st.Reason)
	}
	if code, m := x.do("GET", x.codeID, nil); code != 200 {
		t.Error(code, m)
	}
	if log, _ := x.wait("r"); log == "" {
		t.Error("the log of the job is gone")
	}
	x.stop() // so that what follows the end of a job is done
	for _, dir := range []string{"blobs", "blobs/logs"} {
		if _, err := os.Stat(filepath.Join(x.home, dir)); err != nil {
			t.Error(err)
		}
	}
}
