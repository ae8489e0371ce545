// Package crash kills and stops the server and the runner host, moves their home and kills their
// database at random moments while jobs run, and then asks whether every job has exactly one true
// outcome and its whole log, and whether everything that was acknowledged is there.
package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/store/pgtest"
)

// Sizes: the short form belongs to every test run; BERTH_CRASH_KILLS and BERTH_CRASH_JOBS make it
// long.
func sizes() (jobs, kills int, seed uint64) {
	env := func(name string, def int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return def
	}
	return env("BERTH_CRASH_JOBS", 200), env("BERTH_CRASH_KILLS", 20), uint64(env("BERTH_CRASH_SEED", 1))
}

type chaos struct {
	t     *testing.T
	bin   string
	root  string // everything is below: homes, marks, the server's log
	marks string
	ws    string
	on    string // the compute of the jobs
	files int    // limit of open files of the server, if not 0
	http  *http.Client

	mu    sync.Mutex
	cmd   *exec.Cmd
	moves atomic.Int32 // how often the home was moved

	doubled int // jobs that ran more than once
}

// home is where the home is now.
func (w *chaos) home() string { return filepath.Join(w.root, fmt.Sprint("h", w.moves.Load())) }

// move moves the home, whatever runs in it, unless the server is just being started: it would make
// another home at the old place.
func (w *chaos) move() bool {
	server := w.server()
	code, _, err := w.do("GET", "/readyz", nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || code != http.StatusOK || server != w.cmd.Process.Pid {
		return false
	}
	from := w.home()
	w.moves.Add(1)
	if err := os.Rename(from, w.home()); err != nil {
		w.t.Error(err)
	}
	return true
}

// slots is how many jobs run on this machine at a time, however many cores it has: what is lost
// when all is killed is what runs then.
const slots = 4

// newChaos starts a server with a home of its own; config is its configuration file but for the
// slots.
func newChaos(t *testing.T, config string) *chaos {
	t.Helper()
	w := makeChaos(t, config)
	w.serve()
	return w
}

// makeChaos is newChaos without the start.
func makeChaos(t *testing.T, config string) *chaos {
	t.Helper()
	root, err := os.MkdirTemp("", "bc")
	if err != nil {
		t.Fatal(err)
	}
	w := &chaos{t: t, bin: world.Binary(t), root: root, marks: filepath.Join(root, "marks"), on: "local"}
	if err := errors.Join(os.Mkdir(w.marks, 0o700), os.Mkdir(w.home(), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.home(), "berth.yaml"), fmt.Appendf(nil, "slots: %d\n%s", slots, config), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ws = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/berth/providers/Microsoft.MachineLearningServices/workspaces/default"
	w.http = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.home(), "run", "api.sock"))
		},
	}}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range w.hosts() {
			syscall.Kill(p, syscall.SIGKILL)
		}
		if w.cmd != nil {
			w.cmd.Process.Kill()
			w.cmd.Wait()
		}
		for _, p := range w.hosts() {
			syscall.Kill(p, syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("kept: %s", root)
			return
		}
		os.RemoveAll(root)
	})
	return w
}

// serve starts the server, and starts it again each time it was killed, until the test ends.
func (w *chaos) serve() {
	start := func() *exec.Cmd {
		cmd := exec.Command(w.bin, "serve", "--home", w.home(), "--listen", "127.0.0.1:0")
		if w.files > 0 {
			cmd = exec.Command("/bin/sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, w.files)}, cmd.Args...)...)
		}
		log, err := os.OpenFile(filepath.Join(w.root, "serve.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			w.t.Error(err)
			return nil
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			w.t.Error(err)
			return nil
		}
		return cmd
	}
	w.cmd = start()
	done := w.t.Context().Done()
	go func() {
		for {
			cmd := w.cmd
			cmd.Wait()
			w.mu.Lock()
			select {
			case <-done:
				w.mu.Unlock()
				return
			default:
			}
			if w.cmd = start(); w.cmd == nil {
				w.mu.Unlock()
				return
			}
			w.mu.Unlock()
		}
	}()
}

// server is the process of the server.
func (w *chaos) server() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cmd.Process.Pid
}

// log is what the servers said.
func (w *chaos) log() string {
	b, err := os.ReadFile(filepath.Join(w.root, "serve.log"))
	if err != nil {
		w.t.Error(err)
	}
	return string(b)
}

// hosts are the processes of the runner host of this home: the program itself, started with _host.
// A child that is about to become a command still looks like its parent; it is none of them.
func (w *chaos) hosts() []int {
	lines := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		args := bytes.Split(b, []byte{0})
		if len(args) < 2 || !bytes.Contains(b, []byte("_host")) || !bytes.Contains(b, []byte(w.root+"/")) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(f, "/")[2])
		if err == nil {
			lines[pid] = string(b)
		}
	}
	var out []int
	for pid, line := range lines {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, ok := strings.Cut(string(stat), ") "); err == nil && ok {
			if parent, err := strconv.Atoi(strings.Fields(rest)[1]); err == nil && lines[parent] != line {
				out = append(out, pid)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (w *chaos) do(method, path string, body any) (int, []byte, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://berth"+path, r)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// until repeats f until it is true; a server that is down is a reason to go on.
func (w *chaos) until(what string, limit time.Duration, f func() (bool, error)) {
	w.t.Helper()
	var last error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ok, err := f()
		if ok {
			return
		}
		last = err
	}
	w.t.Fatalf("%s: not within %v; last error: %v", what, limit, last)
}

type outcome struct {
	Status string `json:"status"`
	Berth  struct {
		Reason  string `json:"reason"`
		Attempt int    `json:"attempt"`
		Exit    *struct {
			Code   int    `json:"code"`
			Cause  string `json:"cause"`
			Reason string `json:"reason"`
		} `json:"exit"`
	} `json:"berth"`
}

func (w *chaos) outcome(name string) (outcome, error) {
	code, b, err := w.do("GET", w.ws+"/jobs/"+name, nil)
	if err != nil {
		return outcome{}, err
	}
	if code != http.StatusOK {
		return outcome{}, fmt.Errorf("%d %s", code, b)
	}
	var v struct {
		Properties outcome `json:"properties"`
	}
	return v.Properties, json.Unmarshal(b, &v)
}

func jobName(i int) string { return fmt.Sprintf("crash%04d", i) }

// lines is how many lines job i prints.
func lines(i int) int { return 3 + i%5 }

func exitCode(i int) int { return i % 3 }

func (w *chaos) submit(i int) {
	// The mark says that the command ran, and would say it twice.
	command := fmt.Sprintf(`echo ran >> %s/%s; for i in $(seq %d); do echo "line $i"; sleep 0.0%d; done; exit %d`, w.marks, jobName(i), lines(i), 1+i%9, exitCode(i))
	w.put(jobName(i), command, w.on)
}

func TestKillAnything(t *testing.T) {
	jobs, kills, seed := sizes()
	newChaos(t, "").killing(jobs, kills, seed, append(processFaults, homeMoved))
}

// TestKillAnythingPostgres is the same with a PostgreSQL that is killed too.
func TestKillAnythingPostgres(t *testing.T) {
	jobs, kills, seed := sizes()
	db, err := pgtest.Start()
	pgtest.Need(t, err)
	defer db.Stop()
	newChaos(t, "database: "+db.URL()+"\n").killing(jobs/2, kills/2, seed, append(processFaults, fault{"database killed", 3, func(*chaos, *rand.Rand) bool {
		db.Kill()
		if err := db.Start(); err != nil {
			t.Error(err)
		}
		return true
	}}))
}

// TestKillAnythingCluster is the same with jobs on a cluster. Every node and every job is paid for.
func TestKillAnythingCluster(t *testing.T) {
	jobs, kills, seed := sizes()
	w := newChaos(t, "")
	w.on = "nodes"
	w.cluster("nodes", nil)
	w.killing(jobs/4, kills/2, seed, processFaults)
	w.until("the last node to go", time.Minute, func() (bool, error) {
		code, b, err := w.do("POST", w.ws+"/computes/nodes/listNodes", nil)
		return err == nil && code == http.StatusOK && !bytes.Contains(b, []byte("nodeId")), fmt.Errorf("%d %s %w", code, b, err)
	})
	w.paid(jobs / 4)
}

// paid checks that every job that ran has a cost.
func (w *chaos) paid(jobs int) {
	var cost struct {
		Groups []struct {
			Job       string  `json:"job"`
			NodeHours float64 `json:"nodeHours"`
		} `json:"groups"`
	}
	if err := json.Unmarshal(w.sure("GET", w.ws+"/cost?by=job", nil), &cost); err != nil {
		w.t.Fatal(err)
	}
	hours := map[string]float64{}
	for _, g := range cost.Groups {
		hours[g.Job] += g.NodeHours
	}
	for i := range jobs {
		if _, err := os.Stat(filepath.Join(w.marks, jobName(i))); err == nil && hours[jobName(i)] <= 0 {
			w.t.Errorf("%s ran and cost nothing", jobName(i))
		}
	}
}

// check compares what the server says of a job with what the job itself left behind.
func (w *chaos) check(i int, o outcome) (lost bool) {
	t := w.t
	name := jobName(i)
	ran, err := os.ReadFile(filepath.Join(w.marks, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if n := bytes.Count(ran, []byte("\n")); n > 1 {
		w.doubled++
		t.Errorf("%s ran %d times", name, n)
	}
	if o.Berth.Exit == nil {
		t.Errorf("%s is %s without a record of its exit", name, o.Status)
		return false
	}
	if o.Berth.Exit.Cause == "lost" {
		if o.Berth.Exit.Reason == "" {
			t.Errorf("%s is lost without a reason", name)
		}
		return true
	}
	want := "Completed"
	if exitCode(i) != 0 {
		want = "Failed"
	}
	if o.Status != want || o.Berth.Exit.Code != exitCode(i) || o.Berth.Exit.Cause != "" {
		t.Errorf("%s: status %s, exit %+v; want %s with code %d", name, o.Status, *o.Berth.Exit, want, exitCode(i))
	}
	var wantLog strings.Builder
	for l := range lines(i) {
		fmt.Fprintf(&wantLog, "line %d\n", l+1)
	}
	var log []byte
	w.until("log of "+name, 30*time.Second, func() (bool, error) {
		code, b, err := w.do("GET", w.ws+"/jobs/"+name+"/logs", nil)
		log = b
		return err == nil && code == http.StatusOK, err
	})
	if string(log) != wantLog.String() {
		t.Errorf("%s: log %q, want %q", name, log, wantLog.String())
	}
	return false
}
