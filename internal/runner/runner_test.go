//go:build linux

package runner_test

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/runner"
)

// bench is one task under test.
type bench struct {
	t       *testing.T
	launch  berth.Launch
	options runner.Options
	control *runner.Control

	mu      sync.Mutex
	reports []berth.Report
	running chan struct{} // closed when the command runs
	marks   []runner.Mark
}

func newBench(t *testing.T, command string) *bench {
	t.Helper()
	watch, err := filewatch.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { watch.Close() })
	b := &bench{t: t, control: new(runner.Control), running: make(chan struct{})}
	dir := t.TempDir()
	b.launch = berth.Launch{
		Task: "job.1", Job: "job", Attempt: 1, Command: command, LogFile: filepath.Join(dir, "log"),
		Workspace: berth.Workspace{Subscription: "sub", Group: "rg", Name: "ws"},
	}
	b.options = runner.Options{
		Dir: filepath.Join(dir, "task"), Control: b.control, Watch: watch,
		Report: func(r berth.Report) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if r.State == berth.TaskRunning && !slices.ContainsFunc(b.reports, func(r berth.Report) bool { return r.State == berth.TaskRunning }) {
				close(b.running)
			}
			b.reports = append(b.reports, r)
		},
		Keep: func(m runner.Mark) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.marks = append(b.marks, m)
			return nil
		},
	}
	return b
}

func (b *bench) run() berth.Exit {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 60*time.Second)
	defer cancel()
	exit, err := runner.Run(ctx, b.launch, b.options)
	if err != nil {
		b.t.Fatal(err)
	}
	return exit
}

func (b *bench) log() string {
	b.t.Helper()
	got, err := os.ReadFile(b.launch.LogFile)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(got)
}

func (b *bench) warnings() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var w []string
	for _, r := range b.reports {
		if r.Warning != "" {
			w = append(w, r.Warning)
		}
	}
	return strings.Join(w, "\n")
}

func TestSuccess(t *testing.T) {
	b := newBench(t, "echo out; echo err >&2; pwd; ls")
	if exit := b.run(); !exit.OK() || exit != (berth.Exit{}) {
		t.Errorf("exit %+v", exit)
	}
	if want := "out\nerr\n" + b.options.Dir + "/wd\noutputs\n"; b.log() != want {
		t.Errorf("log %q, want %q", b.log(), want)
	}
	last := b.reports[len(b.reports)-1]
	if last.State != berth.TaskDone || last.Exit == nil || last.Usage == nil {
		t.Errorf("last report %+v", last)
	}
	w := last.Times
	for i, at := range []time.Time{w.Staging, w.Started, w.FirstOutput, w.Ended} {
		if at.IsZero() {
			t.Errorf("time %d is missing: %+v", i, w)
		}
	}
	if !slices.IsSortedFunc(b.reports, func(x, y berth.Report) int { return x.Seq - y.Seq }) {
		t.Error("numbers of reports do not grow")
	}
	var steps []runner.Step
	for _, m := range b.marks {
		steps = append(steps, m.Step)
	}
	if diff := cmp.Diff([]runner.Step{runner.StepExec, runner.StepStarted, runner.StepDone}, steps); diff != "" {
		t.Error(diff)
	}
}

func TestExits(t *testing.T) {
	for _, tt := range []struct {
		command string
		want    berth.Exit
	}{
		{"/bin/true", berth.Exit{}},
		{"/bin/false", berth.Exit{Code: 1, Reason: "the command ended with exit code 1"}},
		{"exit 42", berth.Exit{Code: 42, Reason: "the command ended with exit code 42"}},
		{"no-such-program --x", berth.Exit{Code: 127, Reason: "the command ended with exit code 127: no-such-program: command not found"}},
		{"./outputs", berth.Exit{Code: 126, Reason: "the command ended with exit code 126: ./outputs: Is a directory"}},
		{"kill -SEGV $$", berth.Exit{Code: 139, Signal: "SIGSEGV", Reason: "the command was ended by SIGSEGV"}},
		{"echo ${{inputs.x}}", berth.Exit{Code: -1, Cause: "command", Reason: `${{inputs.x}} is not bound: the job has no input "x"`}},
	} {
		t.Run(tt.command, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, newBench(t, tt.command).run()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A script without an interpreter line cannot be executed; a shell runs it all the same.
func TestScriptWithoutInterpreter(t *testing.T) {
	b := newBench(t, "")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("echo ran $0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.launch.Command = script
	if exit := b.run(); !exit.OK() || b.log() != "ran "+script+"\n" {
		t.Errorf("exit %+v, log %q", exit, b.log())
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("BERTH_TOKEN", "secret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("LC_NUMERIC", "C")
	b := newBench(t, "env")
	b.launch.Env = map[string]string{"MINE": "a b", "AZUREML_RUN_ID": "other", "FROM": "${{inputs.x}}!"}
	b.launch.Inputs = map[string]berth.LaunchInput{"x": {Type: "literal", Value: "v"}}
	b.launch.GPUs = []int{0, 2}
	if exit := b.run(); !exit.OK() {
		t.Fatalf("exit %+v", exit)
	}
	env := map[string]string{}
	for l := range strings.Lines(b.log()) {
		k, v, _ := strings.Cut(strings.TrimSpace(l), "=")
		env[k] = v
	}
	if strings.Contains(b.log(), "secret") {
		t.Errorf("a secret leaked: %s", b.log())
	}
	for k, want := range map[string]string{
		"MINE": "a b", "AZUREML_RUN_ID": "other", "FROM": "v!", "AZUREML_ARM_WORKSPACE_NAME": "ws", "AZUREML_ARM_RESOURCEGROUP": "rg",
		"AZUREML_ARM_SUBSCRIPTION": "sub", "CUDA_VISIBLE_DEVICES": "0,2", "LC_NUMERIC": "C", "PATH": os.Getenv("PATH"),
		"BERTH_TASK": "job.1", "NODE_RANK": "0",
	} {
		if env[k] != want {
			t.Errorf("%s=%q, want %q", k, env[k], want)
		}
	}
}

func TestStop(t *testing.T) {
	b := newBench(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	go func() {
		<-b.running
		b.control.Stop(runner.Stop{Grace: 30 * time.Second, Why: "somebody asked"})
	}()
	exit := b.run()
	if exit.Cause != "canceled" || exit.Reason != "somebody asked" || exit.OK() {
		t.Errorf("exit %+v", exit)
	}
}

func TestTimeout(t *testing.T) {
	// What is ignored here is ignored by what is started here: the command is deaf before its time
	// can be over.
	signal.Ignore(syscall.SIGTERM)
	t.Cleanup(func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM) // Reset alone leaves an ignored signal ignored
		signal.Stop(c)
	})
	b := newBench(t, "while :; do sleep 0.05; done")
	b.launch.Timeout = 150 * time.Millisecond
	b.launch.Grace = 100 * time.Millisecond
	exit := b.run()
	want := berth.Exit{Code: 137, Signal: "SIGKILL", Cause: "timeout", Reason: "it ran longer than its limit of 150ms"}
	if diff := cmp.Diff(want, exit); diff != "" {
		t.Error(diff)
	}
}

// TestStopTree stops a task whose processes left their group, their session and their parent.
func TestStopTree(t *testing.T) {
	b := newBench(t, `sleep 611 &
setsid sleep 612 &
(setsid sh -c 'sleep 613 & sleep 614' &)
setsid sh -c '(setsid sleep 615 &) ; sleep 616' &
echo ready; trap '' TERM; wait; wait; wait`)
	go func() {
		for !strings.Contains(readLog(b.launch.LogFile), "ready") || len(sleepers(b.options.Dir)) < 6 {
			time.Sleep(time.Millisecond)
		}
		b.control.Stop(runner.Stop{Grace: 50 * time.Millisecond})
	}()
	if exit := b.run(); exit.Cause != "canceled" {
		t.Errorf("exit %+v", exit)
	}
	wait(t, "the killed to go", func() bool { return len(sleepers(b.options.Dir)) == 0 })
}

func readLog(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// sleepers lists the command lines of living processes that carry the mark of the task of dir.
func sleepers(dir string) []string {
	var list []string
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range names {
		env, _ := os.ReadFile(p + "/environ")
		cmd, _ := os.ReadFile(p + "/cmdline")
		if strings.Contains(string(env), "BERTH_TASK_DIR="+dir+"\x00") && strings.HasPrefix(string(cmd), "sleep\x006") {
			list = append(list, strings.ReplaceAll(string(cmd), "\x00", " "))
		}
	}
	return list
}

// What is left in the command's group ends with the command.
func TestStragglers(t *testing.T) {
	b := newBench(t, "sleep 621 & sleep 622 & echo done")
	if exit := b.run(); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	wait(t, "what it left to end", func() bool { return len(sleepers(b.options.Dir)) == 0 })
}

func TestOutOfMemory(t *testing.T) {
	b := newBench(t, `echo limited; exec tail /dev/zero`)
	b.launch.Memory = 32 << 20
	exit := b.run()
	if w := b.warnings(); w != "" {
		t.Skipf("limits cannot be set here: %s", w)
	}
	if !exit.OOM || exit.Code != 137 || !strings.Contains(exit.Reason, "32 MiB") {
		t.Errorf("exit %+v", exit)
	}
	if !strings.HasPrefix(b.log(), "limited\n") {
		t.Errorf("log %q", b.log())
	}
}

func TestCPULimit(t *testing.T) {
	b := newBench(t, `grep -q berth /proc/self/cgroup && echo inside; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done`)
	b.launch.CPUs = 0.5
	exit := b.run()
	if w := b.warnings(); w != "" {
		t.Skipf("limits cannot be set here: %s", w)
	}
	if !exit.OK() || b.log() != "inside\n" {
		t.Errorf("exit %+v, log %q", exit, b.log())
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/berth-*-job.1"); len(left) > 0 {
		t.Errorf("groups left: %v", left)
	}
}

func TestStopBeforeStart(t *testing.T) {
	b := newBench(t, "echo ran")
	b.control.Stop(runner.Stop{})
	if exit := b.run(); exit.Cause != "canceled" || exit.Code != -1 {
		t.Errorf("exit %+v", exit)
	}
	if readLog(b.launch.LogFile) != "" {
		t.Error("it ran")
	}
}

// TestBytes checks that output is kept as it is: long, without line ends, and not text.
func TestBytes(t *testing.T) {
	b := newBench(t, `head -c 20000000 /dev/zero | tr '\0' '\377'; printf '\001\002\000'`)
	if exit := b.run(); !exit.OK() {
		t.Fatalf("exit %+v", exit)
	}
	got := b.log()
	if len(got) != 20000003 || got[:2] != "\xff\xff" || !strings.HasSuffix(got, "\x01\x02\x00") {
		t.Errorf("%d bytes", len(got))
	}
}

// TestSamples checks that a task that runs long enough is looked at.
func TestSamples(t *testing.T) {
	b := newBench(t, `sh -c 'while :; do :; done' & sleep 600`)
	report := b.options.Report
	b.options.Report = func(r berth.Report) {
		report(r)
		// One that comes before the loop had its turn says little.
		if u := r.Usage; u != nil && r.State == berth.TaskRunning && u.CPUSeconds > 0 && u.MemoryBytes >= 1<<20 && u.CPUPercent > 0 {
			b.control.Stop(runner.Stop{})
		}
	}
	if exit := b.run(); exit.Cause != "canceled" {
		t.Errorf("exit %+v", exit)
	}
}

// TestAbandon ends a Run without ending the command, and lets another Run take it up.
func TestAbandon(t *testing.T) {
	for name, cpus := range map[string]float64{"free": 0, "limited": 0.5} {
		t.Run(name, func(t *testing.T) { abandon(t, cpus) })
	}
}

func abandon(t *testing.T, cpus float64) {
	b := newBench(t, "echo one; read x <fifo; echo two; exit 5")
	b.launch.CPUs = cpus
	if err := os.MkdirAll(filepath.Join(b.options.Dir, "wd"), 0o700); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(b.options.Dir, "wd", "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-b.running
		cancel()
	}()
	if _, err := runner.Run(ctx, b.launch, b.options); err == nil {
		t.Fatal("an abandoned task ended")
	}
	o := b.options
	o.Last = b.marks[len(b.marks)-1]
	if o.Last.Step != runner.StepStarted || o.Last.PID == 0 || o.Last.StartTime == 0 {
		t.Fatalf("last mark %+v", o.Last)
	}
	var status syscall.WaitStatus
	o.Status = func(_ context.Context, pid int, startTime uint64) (runner.WaitStatus, bool) {
		// This process is its parent, so that the status is there to be had.
		_, err := syscall.Wait4(pid, &status, 0, nil)
		return runner.StatusOf(status), err == nil
	}
	go func() { _ = os.WriteFile(fifo, []byte("x\n"), 0) }()
	exit, err := runner.Run(t.Context(), b.launch, o)
	if err != nil || exit.Code != 5 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	if b.log() != "one\ntwo\n" {
		t.Errorf("log %q", b.log())
	}
	seqs := map[int]bool{}
	for _, r := range b.reports {
		if seqs[r.Seq] {
			t.Errorf("report number %d was used twice", r.Seq)
		}
		seqs[r.Seq] = true
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/berth-*-job.1"); len(left) > 0 {
		t.Errorf("groups left: %v", left)
	}
}

// TestResumeGone takes up tasks whose process is not there any more.
func TestResumeGone(t *testing.T) {
	for _, last := range []runner.Mark{
		{Step: runner.StepExec}, {Step: runner.StepStarted, PID: 1 << 22, StartTime: 1}, {Step: runner.StepStarted, PID: os.Getpid(), StartTime: 1},
	} {
		t.Run(string(last.Step)+strconv.Itoa(last.PID), func(t *testing.T) {
			b := newBench(t, "echo ran")
			b.options.Last = last
			if exit := b.run(); exit.Cause != "lost" || exit.Code != -1 || exit.Reason == "" {
				t.Errorf("exit %+v", exit)
			}
			if readLog(b.launch.LogFile) != "" {
				t.Error("it ran again")
			}
		})
	}
}
