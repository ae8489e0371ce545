package group_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
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

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/group"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "_group" {
		os.Exit(group.Main(os.Args[2:]))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // each launcher and rank would take a second to end
	os.Exit(m.Run())
}

// job is several launchers side by side, each a node on this machine.
type job struct {
	t     *testing.T
	nodes []*nodeRun
}

type nodeRun struct {
	dir string
	cmd *exec.Cmd
	log *os.File
	err error
	end chan struct{}
}

// start starts the nodes of a job: per says how many processes each has.
func start(t *testing.T, typ, command string, per []int, change ...func(*group.Spec)) *job {
	t.Helper()
	j := &job{t: t}
	port := freePorts(t, 16)
	var peers []berth.Peer
	world := 0
	for i, n := range per {
		peers = append(peers, berth.Peer{Name: "n" + strconv.Itoa(i), Address: "127.0.0.1", Slots: n})
		world += n
	}
	rank := 0
	for i, n := range per {
		s := &group.Spec{
			Group: berth.Group{
				Type: typ, Node: i, Nodes: peers, Port: port, Secret: "of " + t.Name(), World: world,
			},
			Command: command,
		}
		for local := range n {
			r := rank
			if typ == "tensorflow" {
				r = i + local*len(per)
			}
			s.Group.Processes = append(s.Group.Processes, berth.Process{Rank: r, Local: local, Log: fmt.Sprintf("user_logs/std_log_process_%d.txt", r)})
			rank++
		}
		dir := filepath.Join(t.TempDir(), "task")
		s.Dir = filepath.Join(dir, "wd")
		if err := os.MkdirAll(s.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range change {
			f(s)
		}
		if err := s.Write(dir); err != nil {
			t.Fatal(err)
		}
		log, err := os.OpenFile(filepath.Join(dir, "std_log.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], group.Words(dir)...)
		cmd.Env = append(os.Environ(), group.TaskDir+"="+dir)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		n := &nodeRun{dir: dir, cmd: cmd, log: log, end: make(chan struct{})}
		go func() { n.err = cmd.Wait(); close(n.end) }()
		j.nodes = append(j.nodes, n)
	}
	t.Cleanup(func() {
		for _, n := range j.nodes {
			_ = n.cmd.Process.Kill()
			<-n.end
			n.log.Close()
		}
	})
	return j
}

// freePorts finds ports in a row that nobody listens on, below those that the kernel hands out and
// that may be gone a moment later.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(9000)
		ok := true
		for i := 0; ok && i < n; i++ {
			l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+i))
			if ok = err == nil; ok {
				l.Close()
			}
		}
		if ok {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

// wait waits for all nodes and returns how they ended.
func (j *job) wait() []berth.Exit {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), 2*time.Minute)
	defer cancel()
	exits := make([]berth.Exit, len(j.nodes))
	for i, n := range j.nodes {
		select {
		case <-n.end:
		case <-ctx.Done():
			for k := range j.nodes {
				j.t.Logf("log of node %d: %s", k, j.log(k, 0))
			}
			j.t.Fatalf("node %d does not end", i)
		}
		e, err := group.Result(n.dir)
		if err != nil || e == nil {
			j.t.Fatalf("node %d left no result (%v): %v; log %s", i, err, n.err, j.log(i, 0))
		}
		exits[i] = *e
	}
	return exits
}

// log is what the local-th process of a node wrote.
func (j *job) log(node, local int) string {
	n := j.nodes[node]
	path := filepath.Join(n.dir, "std_log.txt")
	if local > 0 {
		all, _ := filepath.Glob(filepath.Join(n.dir, "std_log_process_*.txt"))
		slices.Sort(all)
		if local > len(all) {
			return ""
		}
		path = all[local-1]
	}
	b, _ := os.ReadFile(path)
	return string(b)
}

// until waits for a text in a log.
func (j *job) until(node, local int, text string) {
	j.t.Helper()
	if !eventually(j.t, func() bool { return strings.Contains(j.log(node, local), text) }) {
		j.t.Fatalf("%q is not in the log of process %d of node %d: %s", text, local, node, j.log(node, local))
	}
}

func eventually(t *testing.T, f func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func vars(log string) map[string]string {
	m := map[string]string{}
	for l := range strings.Lines(log) {
		k, v, _ := strings.Cut(strings.TrimSpace(l), "=")
		m[k] = v
	}
	return m
}

func TestVariables(t *testing.T) {
	names := []string{
		"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "AZUREML_NODE_COUNT", "AZ_BATCHAI_NUM_NODES", "PWD",
	}
	command := "for n in " + strings.Join(names, " ") + " MASTER_PORT AZ_BATCH_MASTER_NODE; do echo $n=${!n}; done; cat ../group.json || echo SECRET=gone"
	port := 0
	j := start(t, "pytorch", command, []int{2, 2}, func(s *group.Spec) { port = s.Group.Port })
	for i, e := range j.wait() {
		if d := cmp.Diff(berth.Exit{}, e); d != "" {
			t.Errorf("node %d: %s", i, d)
		}
	}
	for rank := range 4 {
		node, local := rank/2, rank%2
		got := vars(j.log(node, local))
		want := []string{
			strconv.Itoa(rank), strconv.Itoa(local), "4", "2", strconv.Itoa(node), "127.0.0.1", "2", "2", filepath.Join(j.nodes[node].dir, "wd"),
		}
		for i, n := range names {
			if got[n] != want[i] {
				t.Errorf("rank %d: %s is %q, want %q", rank, n, got[n], want[i])
			}
		}
		if got["MASTER_PORT"] != strconv.Itoa(port) || got["AZ_BATCH_MASTER_NODE"] != "127.0.0.1:"+strconv.Itoa(port) || got["SECRET"] != "gone" {
			t.Errorf("rank %d: %v", rank, got)
		}
	}
}

func TestTensorFlow(t *testing.T) {
	port := 0
	j := start(t, "tensorflow", `echo "$TF_CONFIG"`, []int{2, 1}, func(s *group.Spec) {
		s.Group.Workers, s.Group.Servers, port = 2, 1, s.Group.Port
	})
	j.wait()
	type config struct {
		Cluster map[string][]string
		Task    struct {
			Type  string
			Index int
		}
	}
	at := func(n int) string { return "127.0.0.1:" + strconv.Itoa(port+n) }
	cluster := map[string][]string{"worker": {at(0), at(1)}, "ps": {at(2)}}
	for i, c := range []struct {
		node, local, index int
		typ                string
	}{{0, 0, 0, "worker"}, {1, 0, 1, "worker"}, {0, 1, 0, "ps"}} {
		var got config
		if err := json.Unmarshal([]byte(j.log(c.node, c.local)), &got); err != nil {
			t.Fatalf("process %d: %v: %q", i, err, j.log(c.node, c.local))
		}
		want := config{Cluster: cluster}
		want.Task.Type, want.Task.Index = c.typ, c.index
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("process %d: %s", i, d)
		}
	}
}

// TestOneFails: the first process to fail ends the others of its node, and is the one that is
// named.
func TestOneFails(t *testing.T) {
	j := start(t, "pytorch", `trap 'echo asked; exit 9' TERM; if [ $RANK = 3 ]; then printf 'Traceback (most recent call last):\n  File\nValueError: of rank 3\n'; exit 7; fi; echo ready; sleep 600 & wait`, []int{1, 3})
	j.until(0, 0, "ready")
	e := <-result(j, 1)
	want := berth.Exit{Code: 7, Process: 3, Log: "user_logs/std_log_process_3.txt", Reason: "process 3 (node 1) ended with exit code 7: ValueError: of rank 3"}
	if d := cmp.Diff(want, e); d != "" {
		t.Error(d)
	}
	if code := j.nodes[1].cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("the launcher's exit code is %d", code)
	}
	if got := j.log(0, 0); got != "ready\n" {
		t.Errorf("another node's process: %q", got)
	}
	_ = j.nodes[0].cmd.Process.Signal(syscall.SIGTERM)
	if e := <-result(j, 0); e.Code != 9 || e.Process != 0 || j.log(0, 0) != "ready\nasked\n" {
		t.Errorf("asked to end: %+v, log %q", e, j.log(0, 0))
	}
}

func result(j *job, node int) <-chan berth.Exit {
	c := make(chan berth.Exit, 1)
	one := &job{t: j.t, nodes: j.nodes[node : node+1]}
	c <- one.wait()[0]
	return c
}

// TestDeaf: who does not end when asked to is ended.
func TestDeaf(t *testing.T) {
	j := start(t, "", `trap '' TERM; echo $$; if [ $RANK = 0 ]; then until [ -e deaf ]; do sleep 0.01; done; kill -9 $$; fi; >deaf; while :; do sleep 0.05; done`, []int{2}, func(s *group.Spec) { s.Grace = 200 * time.Millisecond })
	e := j.wait()[0]
	want := berth.Exit{Code: 137, Signal: "SIGKILL", Log: "user_logs/std_log_process_0.txt", Reason: "process 0 (node 0) was ended by SIGKILL"}
	if d := cmp.Diff(want, e); d != "" {
		t.Error(d)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(j.log(0, 1)))
	if err != nil {
		t.Fatalf("log %q", j.log(0, 1))
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("the other process is still there: %v", err)
	}
}

// TestLauncherKilled: processes do not outlive their launcher.
func TestLauncherKilled(t *testing.T) {
	j := start(t, "", `echo $$; exec sleep 600`, []int{1})
	j.until(0, 0, "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(j.log(0, 0)))
	_ = j.nodes[0].cmd.Process.Kill()
	<-j.nodes[0].end
	gone := func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(b, []byte(") Z "))
	}
	if !eventually(t, gone) {
		t.Fatalf("process %d lives", pid)
	}
	if e, err := group.Result(j.nodes[0].dir); e != nil || err != nil {
		t.Errorf("a launcher that was killed left %+v, %v", e, err)
	}
}

func TestNothingToDo(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command(os.Args[0], group.Words(dir)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cannot begin") {
		t.Errorf("%v: %s", err, out)
	}
	if e, _ := group.Result(dir); e == nil || e.Cause != "command" {
		t.Errorf("result %+v", e)
	}
}
