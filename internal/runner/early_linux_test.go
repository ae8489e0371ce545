package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// early is a node whose cache has an input that counts as large.
type early struct {
	t   *testing.T
	c   *cache.Cache
	dir string
	s   *blobtest.Server
}

func newEarly(t *testing.T) *early {
	e := &early{t: t, dir: filepath.Join(t.TempDir(), "cache"), s: blobtest.New(t)}
	if why := runner.MountTrouble(); why != "" && os.Getuid() == 0 {
		t.Skip(why)
	}
	e.open()
	e.s.Set(map[string]string{"data/a": "a", "data/sub/b": "b", "data/sub/c": "c"})
	b := e.bench("cat ${{inputs.d}}/sub/b")
	if exit := b.run(); !exit.OK() || b.log() != "b" || !strings.Contains(b.staged(), "brought to the node") {
		t.Fatalf("log %s, staged %s", b.log(), b.staged())
	}
	return e
}

func (e *early) open() {
	c, err := cache.Open(e.dir, cache.Options{Protect: os.Getuid() != 0, CheckFirst: 2})
	if err != nil {
		e.t.Fatal(err)
	}
	e.c = c
	e.t.Cleanup(c.Close)
}

func (e *early) bench(command string) *bench {
	b := newBench(e.t, command)
	b.options.Cache = e.c
	b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "uri_folder", Mode: "ReadOnlyMount", URL: e.s.At("data"), Version: "v", Ours: true}}
	return b
}

// alter changes a file of the input in the cache.
func (e *early) alter(name string) {
	e.t.Helper()
	found, err := filepath.Glob(filepath.Join(e.dir, "trees", "*", "files", name))
	if err != nil || len(found) != 1 {
		e.t.Fatal(found, err)
	}
	if err := os.Chmod(found[0], 0o600); err != nil {
		e.t.Fatal(err)
	}
	if err := os.WriteFile(found[0], []byte("X"), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

// TestEarlyInput: a large input is used before it is checked, and the task is not over before it
// was.
func TestEarlyInput(t *testing.T) {
	e := newEarly(t)
	b := e.bench("cat ${{inputs.d}}/sub/b")
	if exit := b.run(); !exit.OK() || b.log() != "b" || !strings.Contains(b.staged(), "3 files, 0.0 MB, on the node already, checked while the command runs") {
		t.Errorf("exit %+v, log %s, staged %s", exit, b.log(), b.staged())
	}
	if _, err := os.Stat(filepath.Join(b.options.Dir, "unchecked")); !os.IsNotExist(err) {
		t.Errorf("it is not known to be checked: %v", err)
	}
}

// TestEarlyInputAltered: a task that read an altered input ends, whether its command ended by
// itself, well or not, or would not. The next attempt gets the input as it should be.
func TestEarlyInputAltered(t *testing.T) {
	for _, command := range []string{"cat ${{inputs.d}}/sub/b", "false # ${{inputs.d}}", "sleep 1000 # ${{inputs.d}}"} {
		e := newEarly(t)
		e.alter("sub/b")
		b := e.bench(command)
		exit := b.run()
		if exit.Cause != "evicted" || !strings.Contains(exit.Reason, "input d: 1 cached files were altered on the node's disk") || !strings.Contains(exit.Reason, "sub/b") {
			t.Errorf("%s: exit %+v", command, exit)
		}
		if !strings.Contains(b.warnings(), "sub/b") {
			t.Errorf("%s: warnings %s", command, b.warnings())
		}
		next := e.bench("cat ${{inputs.d}}/sub/b")
		next.launch.Task, next.launch.Attempt = "job.2", 2
		if exit := next.run(); !exit.OK() || next.log() != "b" {
			t.Errorf("%s: the next attempt: exit %+v, log %s", command, exit, next.log())
		}
	}
}

// TestSecondAttemptChecksFirst: a job whose input is altered again and again is not run for ever.
func TestSecondAttemptChecksFirst(t *testing.T) {
	e := newEarly(t)
	e.alter("sub/b")
	b := e.bench("cat ${{inputs.d}}/sub/b")
	b.launch.Task, b.launch.Attempt = "job.2", 2
	if exit := b.run(); !exit.OK() || b.log() != "b" || !strings.Contains(b.warnings(), "were altered") {
		t.Errorf("exit %+v, log %s, warnings %s", exit, b.log(), b.warnings())
	}
}

// TestCacheDeletedUnderCommand: a command whose input, or whose code, was deleted from the cache
// while it ran may have seen a part of it, and is run again whatever it said; a second time it
// fails. Who reads a copy is not concerned, and neither is who is told to stop.
func TestCacheDeletedUnderCommand(t *testing.T) {
	const said = "was deleted or discarded on the node while the command ran"
	for mode, want := range map[string]string{"ReadOnlyMount": "evicted", "Download": ""} {
		for _, what := range []string{"", "/trees/*/files/a"} {
			e := newEarly(t)
			remove := "rm -rf " + e.dir + what
			b := e.bench(remove + "; cat ${{inputs.d}}/* | wc -c")
			in := b.launch.Inputs["d"]
			in.Mode = mode
			b.launch.Inputs["d"] = in
			exit := b.run()
			// The check that runs meanwhile may find a part of it gone, and says that.
			if want == "" && !exit.OK() || exit.Cause != want || want != "" && !strings.Contains(exit.Reason, "input") {
				t.Errorf("%s, %s: exit %+v", mode, remove, exit)
			}
			if want != "" && !strings.Contains(b.warnings(), "input") {
				t.Errorf("%s: warnings %s", remove, b.warnings())
			}
			next := e.bench("cat ${{inputs.d}}/a")
			next.launch.Task, next.launch.Attempt = "job.2", 2
			if exit := next.run(); !exit.OK() || next.log() != "a" {
				t.Errorf("the next attempt: exit %+v, log %s", exit, next.log())
			}
			again := e.bench("rm -rf " + e.dir + " # ${{inputs.d}}")
			again.launch.Task, again.launch.Attempt = "job.3", 2
			if exit := again.run(); exit.Cause != "staging" || !strings.Contains(exit.Reason, said) {
				t.Errorf("a second attempt: exit %+v", exit)
			}
		}
	}
}

// TestCheckedInput: where a launch says so, the first attempt does not read an input before it was
// checked.
func TestCheckedInput(t *testing.T) {
	e := newEarly(t)
	e.alter("sub/b")
	b := e.bench("cat ${{inputs.d}}/sub/b")
	b.launch.Checked = true
	if exit := b.run(); !exit.OK() || b.log() != "b" || !strings.Contains(b.warnings(), "were altered") {
		t.Errorf("exit %+v, log %s, warnings %s", exit, b.log(), b.warnings())
	}
}

// TestEarlyInputOfAnEarlierRunner: who takes up a task whose input was not checked checks it, also
// when the command has ended meanwhile.
func TestEarlyInputOfAnEarlierRunner(t *testing.T) {
	for _, altered := range []bool{false, true} {
		e := newEarly(t)
		b := e.bench("cat ${{inputs.d}}/sub/b; sleep 1000")
		ctx, abandon := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = runner.Run(ctx, b.launch, b.options)
		}()
		<-b.running
		abandon()
		<-done
		// As if it had been killed before the check was over.
		key, err := filepath.Glob(filepath.Join(e.dir, "trees", "*"))
		if err != nil || len(key) != 1 {
			t.Fatal(key, err)
		}
		if err := os.WriteFile(filepath.Join(b.options.Dir, "unchecked"), []byte("input d\t"+filepath.Base(key[0])+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if altered {
			e.alter("sub/b")
		}
		e.c.Close()
		e.open()
		next := e.bench("")
		next.launch, next.options.Dir = b.launch, b.options.Dir
		next.options.Last = b.marks[len(b.marks)-1]
		if !altered {
			next.control.Stop(runner.Stop{})
		}
		exit := next.run()
		if want := map[bool]string{false: "canceled", true: "evicted"}[altered]; exit.Cause != want {
			t.Errorf("altered %v: exit %+v", altered, exit)
		}
	}
}

// TestCacheDeletedBetweenRunners: what became of the folder that a command reads is known to the
// runner that takes the task up too.
func TestCacheDeletedBetweenRunners(t *testing.T) {
	for _, what := range []string{"", "/trees/*/files", "/trees/*/files/a", "none"} {
		e := newEarly(t)
		b := e.bench("read x <fifo; true # ${{inputs.d}}")
		if err := os.MkdirAll(filepath.Join(b.options.Dir, "wd"), 0o700); err != nil {
			t.Fatal(err)
		}
		fifo := filepath.Join(b.options.Dir, "wd", "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, abandon := context.WithCancel(t.Context())
		go func() {
			<-b.running
			abandon()
		}()
		if _, err := runner.Run(ctx, b.launch, b.options); err == nil {
			t.Fatal("an abandoned task ended")
		}
		// As if the check was over.
		if err := os.Remove(filepath.Join(b.options.Dir, "unchecked")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		found, err := filepath.Glob(e.dir + what)
		if err != nil || len(found) != 1 && what != "none" {
			t.Fatal(found, err)
		}
		for _, path := range found {
			if err := cache.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		e.c.Close()
		e.open()
		next := e.bench("")
		next.launch, next.options.Dir = b.launch, b.options.Dir
		next.options.Last = b.marks[len(b.marks)-1]
		next.options.Status = func(_ context.Context, pid int, _ uint64) (runner.WaitStatus, bool) {
			var status syscall.WaitStatus
			_, err := syscall.Wait4(pid, &status, 0, nil)
			return runner.StatusOf(status), err == nil
		}
		go func() { _ = os.WriteFile(fifo, []byte("x\n"), 0) }()
		exit := next.run()
		if what == "none" && !exit.OK() || what != "none" && (exit.Cause != "evicted" || !strings.Contains(exit.Reason, "input d: ")) {
			t.Errorf("%q: exit %+v", what, exit)
		}
	}
}
