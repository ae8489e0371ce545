//go:build linux

package runner_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/data/blobtest"
	"github.com/berthml/berth/internal/runner/group"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "_group" {
		os.Exit(group.Main(os.Args[2:]))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a launcher would take a second to end
	code := m.Run()
	for _, f := range atExit {
		f()
	}
	os.Exit(code)
}

var atExit []func() // what is left when all tests have run

// newGroup is the second of two nodes with two processes each.
func newGroup(t *testing.T, command string) *bench {
	t.Helper()
	b := newBench(t, command)
	peers := []berth.Peer{{Name: "a", Address: "127.0.0.1", Slots: 2}, {Name: "b", Address: "127.0.0.1", Slots: 2}}
	b.launch.Group = &berth.Group{Type: "pytorch", Node: 1, Nodes: peers, Port: 20000, Secret: "s", World: 4}
	for i := range 2 {
		b.launch.Group.Processes = append(b.launch.Group.Processes, berth.Process{
			Rank: 2 + i, Local: i, Log: fmt.Sprintf("user_logs/std_log_process_%d.txt", 2+i), LogFile: b.launch.LogFile + fmt.Sprint(i),
		})
	}
	b.launch.Log = b.launch.Group.Processes[0].Log
	b.launch.Group.Processes[0].LogFile = b.launch.LogFile
	return b
}

func (b *bench) second() string { return readLog(b.launch.Group.Processes[1].LogFile) }

func TestGroup(t *testing.T) {
	b := newGroup(t, `echo $RANK of $WORLD_SIZE on $NODE_RANK of $AZUREML_NODE_COUNT at $PWD`)
	if exit := b.run(); exit != (berth.Exit{}) {
		t.Errorf("exit %+v", exit)
	}
	wd := b.options.Dir + "/wd\n"
	if b.log() != "2 of 4 on 1 of 2 at "+wd || b.second() != "3 of 4 on 1 of 2 at "+wd {
		t.Errorf("logs %q, %q", b.log(), b.second())
	}
	left, err := filepath.Glob(filepath.Join(b.options.Dir, "group.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestGroupFails(t *testing.T) {
	b := newGroup(t, `if [ $RANK = 3 ]; then exit 4; fi; sleep 600`)
	want := berth.Exit{Code: 4, Process: 3, Log: "user_logs/std_log_process_3.txt", Reason: "process 3 (node 1) ended with exit code 4"}
	if d := cmp.Diff(want, b.run()); d != "" {
		t.Error(d)
	}
	if want := "berth: process 3 (node 1) ended with exit code 4\n"; b.log() != want {
		t.Errorf("log of the other process %q", b.log())
	}
}

// TestGroupStop: an eviction reaches each process once, and is the cause of the end.
func TestGroupStop(t *testing.T) {
	b := newGroup(t, `trap 'echo asked; n=$((n+1))' TERM; echo ready; while [ "$n" != 1 ]; do sleep 0.02; done; sleep 0.2; exit 0`)
	go func() {
		for !strings.HasPrefix(readLog(b.launch.LogFile), "ready") || b.second() == "" {
			time.Sleep(5 * time.Millisecond)
		}
		b.control.Stop(runner.Stop{Grace: time.Minute, Cause: "evicted", Why: "the node was reclaimed"})
	}()
	if exit := b.run(); exit.Cause != "evicted" || exit.Code != 0 || exit.Reason != "the node was reclaimed" {
		t.Errorf("exit %+v", exit)
	}
	if strings.Count(b.log(), "asked") != 1 || strings.Count(b.second(), "asked") != 1 {
		t.Errorf("logs %q, %q", b.log(), b.second())
	}
}

// TestGroupDeaf: when the grace is over the launcher and everything below it is gone.
func TestGroupDeaf(t *testing.T) {
	b := newGroup(t, `trap '' TERM; setsid sleep 600 & echo ready; wait; sleep 600`)
	go func() {
		for !strings.HasPrefix(readLog(b.launch.LogFile), "ready") || b.second() == "" {
			time.Sleep(5 * time.Millisecond)
		}
		b.control.Stop(runner.Stop{Grace: 50 * time.Millisecond})
	}()
	if exit := b.run(); exit.Cause != "canceled" || exit.Signal != "SIGKILL" {
		t.Errorf("exit %+v", exit)
	}
	wait(t, "the killed to go", func() bool { return len(runner.Marked(b.options.Dir)) == 0 })
}

// TestGroupAdopted: a launcher tells how its processes ended also to a runner that did not start
// it.
func TestGroupAdopted(t *testing.T) {
	b := newGroup(t, `until [ -e go ]; do sleep 0.02; done; exit $RANK`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-b.running
		cancel()
	}()
	if _, err := runner.Run(ctx, b.launch, b.options); err == nil {
		t.Fatal("an abandoned task ended")
	}
	b.options.Last = b.marks[len(b.marks)-1] // and nobody who could know the status
	if err := os.WriteFile(filepath.Join(b.options.Dir, "wd", "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.running = make(chan struct{})
	b.reports = nil
	if exit := b.run(); exit.Process < 2 || exit.Code != exit.Process || exit.Cause != "" {
		t.Errorf("exit %+v", exit)
	}
}

// logHome keeps what is sent of logs.
type logHome struct {
	mu   sync.Mutex
	logs map[string]string
}

func (h *logHome) Report(context.Context, []berth.Report) (runner.Reply, error) {
	return runner.Reply{}, nil
}

func (h *logHome) SignStorage(context.Context, runner.Task, string, []berth.OutsideRequest) ([]string, error) {
	return nil, berth.Errorf(berth.Unsupported, "nothing is signed here")
}

func (h *logHome) AppendLog(_ context.Context, _ runner.Task, name string, offset int64, p []byte) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if int64(len(h.logs[name])) == offset {
		h.logs[name] += string(p)
	}
	return int64(len(h.logs[name])), nil
}

// TestGroupShips: where the server's disk is not shared each process's log is sent under its name.
func TestGroupShips(t *testing.T) {
	b := newGroup(t, `echo I am $RANK`)
	home := &logHome{logs: map[string]string{}}
	b.options.Home = home
	b.launch.LogFile = ""
	for i := range b.launch.Group.Processes {
		b.launch.Group.Processes[i].LogFile = ""
	}
	if exit := b.run(); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	want := map[string]string{"user_logs/std_log_process_2.txt": "I am 2\n", "user_logs/std_log_process_3.txt": "I am 3\n"}
	if d := cmp.Diff(want, home.logs); d != "" {
		t.Error(d)
	}
}

// TestKeep: what an attempt leaves in ./outputs and in its named outputs is there for the next, and
// what the last one has is uploaded.
func TestKeep(t *testing.T) {
	s := blobtest.New(t)
	s.Set(map[string]string{"code/outputs/start": "from the code\n", "code/train.sh": `
cat outputs/start outputs/checkpoint 2>/dev/null
cat $1/model 2>/dev/null
echo attempt $AZUREML_RUN_ATTEMPT >>outputs/checkpoint
echo attempt $AZUREML_RUN_ATTEMPT >>outputs/start
echo model of $AZUREML_RUN_ATTEMPT >$1/model
`})
	keep := filepath.Join(t.TempDir(), "kept")
	attempt := func(n int) string {
		b := newBench(t, "sh train.sh ${{outputs.m}}")
		b.launch.Attempt, b.launch.Keep, b.launch.Code = n, keep, s.At("code")
		b.launch.Artifacts = s.At("run")
		b.launch.Outputs = map[string]berth.LaunchOutput{"m": {Type: "uri_folder", URL: s.At("model")}}
		if exit := b.run(); !exit.OK() {
			t.Fatalf("exit %+v, log %s", exit, b.log())
		}
		return b.log()
	}
	if got := attempt(1); got != "from the code\n" {
		t.Errorf("first attempt: %q", got)
	}
	if got := attempt(2); got != "from the code\nattempt 1\nattempt 1\nmodel of 1\n" {
		t.Errorf("second attempt: %q", got)
	}
	want := map[string]string{
		"run/outputs/checkpoint": "attempt 1\nattempt 2\n", "run/outputs/start": "from the code\nattempt 1\nattempt 2\n", "model/model": "model of 2\n",
	}
	got := s.All("")
	maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasPrefix(name, "code/") })
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
