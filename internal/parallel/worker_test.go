package parallel_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/parallel"
)

// node is a task's program, and a server that answers it as a test likes.
type node struct {
	t    *testing.T
	how  kind.Parallel
	dir  string // of the task
	tmp  string // of the machine
	mu   sync.Mutex
	asks []parallel.Ask
	// answer is called for each question, one at a time.
	answer func(parallel.Ask) parallel.Answer
	rows   http.HandlerFunc
}

func newNode(t *testing.T, script string, files ...string) *node {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	n := &node{t: t, dir: t.TempDir(), tmp: t.TempDir(), how: kind.Parallel{Input: "d", Size: 1, Workers: 2, Timeout: time.Minute, Script: "score.py", Output: "o", File: "rows.csv"}}
	n.write("wd/score.py", script)
	for _, f := range files {
		n.write("inputs/d/"+f, f)
	}
	return n
}

func (n *node) write(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// run runs the program to its end and returns what it printed.
func (n *node) run() (string, error) {
	n.t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /runner/v1/tasks/j.1/work", func(w http.ResponseWriter, r *http.Request) {
		line, err := bufio.NewReader(r.Body).ReadBytes('\n')
		var ask parallel.Ask
		if err == nil {
			err = json.Unmarshal(line, &ask)
		}
		if err != nil {
			n.t.Error(err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.asks = append(n.asks, ask)
		if err := json.NewEncoder(w).Encode(n.answer(ask)); err != nil {
			n.t.Error(err)
		}
	})
	if n.rows != nil {
		mux.HandleFunc("GET /runner/v1/tasks/j.1/rows", n.rows)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	l := &berth.Launch{Task: "j.1", Attempt: 1, Env: map[string]string{}, Tracking: &berth.LaunchTracking{Token: "t"}}
	if err := parallel.Launch(l, n.how, server.URL); err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(n.t.Context(), "sh", "-c", l.Command)
	cmd.Dir = filepath.Join(n.dir, "wd")
	cmd.Env = append(os.Environ(), "TMPDIR="+n.tmp, "BERTH_TASK_DIR="+n.dir, "AZURE_ML_INPUT_d="+filepath.Join(n.dir, "inputs/d"), "AZURE_ML_OUTPUT_o="+filepath.Join(n.dir, "outputs/o"))
	for k, v := range l.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// hand gives mini-batches to whoever wants some until they are all given.
type hand struct {
	waiting []parallel.Piece
	count   int
}

func newHand(files ...string) *hand {
	h := &hand{count: len(files)}
	for i, f := range files {
		h.waiting = append(h.waiting, parallel.Piece{Number: i + 1, Items: []string{f}})
	}
	return h
}

func (h *hand) give(a parallel.Ask) (out parallel.Answer) {
	n := min(a.Want, len(h.waiting))
	out.Batches, h.waiting = slices.Clone(h.waiting[:n]), h.waiting[n:]
	out.Work = &berth.Work{Batches: h.count, Waiting: len(h.waiting)}
	out.End = n == 0 && len(a.Holding) == 0
	return out
}

// TestIdleProcess: a node whose processes are not all busy asks for more about once a second. Only
// the time between questions can be too short, however slow the machine is.
func TestIdleProcess(t *testing.T) {
	n := newNode(t, `
import os, time
def run(files):
    while "b" in files[0] and not os.path.exists("go"):
        time.sleep(0.01)
    return files
`, "a", "b")
	h := newHand("a", "b")
	var refused []time.Time
	n.answer = func(a parallel.Ask) parallel.Answer {
		out := h.give(a)
		if len(out.Batches) == 0 && len(a.Holding) > 0 {
			if refused = append(refused, time.Now()); len(refused) == 3 {
				n.write("wd/go", "")
			}
		}
		return out
	}
	if out, err := n.run(); err != nil {
		t.Fatal(err, out)
	}
	if len(refused) < 3 || refused[2].Sub(refused[0]) < 1500*time.Millisecond {
		t.Errorf("it asked at %v", refused)
	}
}

// TestLastLines: what processes print at their end is in the logs.
func TestLastLines(t *testing.T) {
	n := newNode(t, `
def run(files):
    return files
def shutdown():
    print("line\n" * 20000 + "the last line", flush=True)
`, "a", "b")
	n.answer = newHand("a", "b").give
	out, err := n.run()
	if err != nil {
		t.Fatal(err, out)
	}
	if got := strings.Count(out, "the last line"); got != 2 {
		t.Errorf("%d last lines in the log of %d bytes", got, len(out))
	}
	for i := range 2 {
		b, err := os.ReadFile(filepath.Join(n.dir, "wd/logs/user/stdout/node-1", fmt.Sprintf("process%03d.stdout.txt", i)))
		if err != nil || !strings.HasSuffix(string(b), "the last line\n") {
			t.Errorf("the log of process %d has %d bytes: %v", i, len(b), err)
		}
	}
}

// TestKilledWorkerLeavesNothing: what the program needs is in the task's directory, which goes with
// the task.
func TestKilledWorkerLeavesNothing(t *testing.T) {
	n := newNode(t, `
import os, signal
def run(files):
    os.kill(os.getppid(), signal.SIGKILL)
`, "a")
	n.answer = newHand("a").give
	if out, err := n.run(); err == nil {
		t.Fatal("it was not killed:", out)
	}
	left, err := os.ReadDir(n.tmp)
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestNoLongerWriter: a task that was to write the result ends well when mini-batches are done
// again meanwhile: another one writes it.
func TestNoLongerWriter(t *testing.T) {
	n := newNode(t, "def run(files):\n    return files\n", "a")
	h := newHand("a")
	n.answer = func(a parallel.Ask) parallel.Answer {
		out := h.give(a)
		out.Write, out.End = out.End, false
		return out
	}
	n.rows = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"error": {"message": "it is another's"}}`)
	}
	out, err := n.run()
	if err != nil || !strings.Contains(out, "the result is left to another task: it is another's") {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := filepath.Glob(filepath.Join(n.dir, "outputs/o/*")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestLongListOfFiles: the names of many files are sent in several questions, and every name once.
func TestLongListOfFiles(t *testing.T) {
	const count = 9000
	n := newNode(t, "def run(files):\n    return files\n")
	long := strings.Repeat("x", 150)
	for i := range count {
		n.write(fmt.Sprintf("inputs/d/%s/%05d", long, i), "")
	}
	var named []string
	n.answer = func(a parallel.Ask) parallel.Answer {
		if a.From != len(named) {
			t.Errorf("%d names came after %d", a.From, len(named))
		}
		for _, b := range a.Plan {
			named = append(named, b...)
		}
		if a.Plan != nil && !a.More {
			return parallel.Answer{End: true, Work: &berth.Work{Batches: count}}
		}
		return parallel.Answer{Plan: true, From: len(named)}
	}
	if out, err := n.run(); err != nil {
		t.Fatal(err, out)
	}
	if len(n.asks) < 3 || len(named) != count || named[count-1] != fmt.Sprintf("%s/%05d", long, count-1) {
		t.Errorf("%d names in %d questions", len(named), len(n.asks))
	}
}
