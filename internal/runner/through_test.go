//go:build linux

package runner_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// await waits until something holds.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// start runs the task until it is abandoned, as when its runner is killed.
func (b *bench) start() (abandon func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := runner.Run(ctx, b.launch, b.options)
		done <- err
	}()
	return func() {
		b.t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			b.t.Errorf("the task ended with %v", err)
		}
	}
}

func (b *bench) kept() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.reports {
		if r.Kept != nil {
			names = r.Kept
		}
	}
	return names
}

// TestThrough: what a command writes is in the storage while it runs, in folders of every kind;
// what it changes is sent again, and what it removes is deleted, also by the next runner.
func TestThrough(t *testing.T) {
	s := blobtest.New(t)
	dir := t.TempDir()
	step := filepath.Join(dir, "step")
	b := newBench(t, `echo 1 >${{outputs.o}}/a; mkdir ${{outputs.o}}/d; echo 2 >${{outputs.o}}/d/b; echo 3 >${{outputs.f}}; echo 4 >outputs/c; echo 5 >${{outputs.l}}/e
while ! test -e `+step+`1; do sleep 0.01; done; rm ${{outputs.o}}/a; echo more >>${{outputs.o}}/d/b
while ! test -e `+step+`2; do sleep 0.01; done; rm -r ${{outputs.o}}/d outputs/c ${{outputs.l}}/e; echo last >${{outputs.o}}/z`)
	b.launch.Artifacts = s.At("run")
	b.launch.Outputs = map[string]berth.LaunchOutput{
		"o": {Type: "uri_folder", URL: s.At("job/o"), Mode: "ReadWriteMount"}, "f": {Type: "uri_file", URL: s.At("job/f.bin"), Mode: "Upload"},
		"l": {Type: "uri_folder", URL: "file://" + dir + "/l"},
	}
	b.options.Through = time.Millisecond
	abandon := b.start()
	local := func() string { text, _ := os.ReadFile(filepath.Join(dir, "l", "e")); return string(text) }
	want := map[string]string{"job/o/a": "1\n", "job/o/d/b": "2\n", "job/f.bin": "3\n", "run/outputs/c": "4\n"}
	await(t, "everything is sent", func() bool { return cmp.Equal(want, s.All("")) && local() == "5\n" })
	all := []string{berth.OutputsFolder, "f", "l", "o"}
	await(t, "it is reported", func() bool { return slices.Equal(b.kept(), all) })
	if err := os.WriteFile(step+"1", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	delete(want, "job/o/a")
	want["job/o/d/b"] = "2\nmore\n"
	await(t, "changes are sent", func() bool { return cmp.Equal(want, s.All("")) })

	// The command goes on, and so does the next runner, which knows what was sent.
	abandon()
	b.options.Last, b.options.Through = b.marks[len(b.marks)-1], time.Hour
	if err := os.WriteFile(step+"2", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.options.Status = func(context.Context, int, uint64) (runner.WaitStatus, bool) { return runner.WaitStatus{}, true }
	if exit := b.run(); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	if diff := cmp.Diff(map[string]string{"job/o/z": "last\n", "job/f.bin": "3\n"}, s.All("")); diff != "" {
		t.Error(diff)
	}
	if local() != "" {
		t.Error("a file that the command removed is still in the folder")
	}
	if kept := b.kept(); !slices.Equal(kept, all) {
		t.Errorf("the next runner reports that something of %q was sent", kept)
	}
	if w := b.warnings(); w != "" {
		t.Errorf("warnings %q", w)
	}
}

// TestThroughTorn: a file that is written to all the time is not sent before the command ends, and
// one that is written to while it is sent does not replace what was sent of it before.
func TestThroughTorn(t *testing.T) {
	s := blobtest.New(t)
	out := filepath.Join(t.TempDir(), "task", "outputs", "o")
	torn := make(chan struct{}, 1)
	var over atomic.Bool
	s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if !over.Load() && strings.HasSuffix(r.URL.Path, "/torn") && r.Method == http.MethodPut {
			// The transport has read only some of the body by now.
			f, err := os.OpenFile(filepath.Join(out, "torn"), os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, err = f.WriteString("x")
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Error(err)
			}
			select {
			case torn <- struct{}{}:
			default:
			}
		}
		return false
	}
	b := newBench(t, `head -c 30000000 /dev/zero >$O/torn; (while sleep 0.002; do echo x >>$O/grows; done) & read x <$O/../../go; kill $!`)
	b.options.Dir = filepath.Dir(filepath.Dir(out))
	b.launch.Env = map[string]string{"O": out}
	b.launch.Outputs = map[string]berth.LaunchOutput{"o": {Type: "uri_folder", URL: s.At("job/o")}}
	b.launch.Command = "mkfifo ../go; " + b.launch.Command
	b.options.Through = 50 * time.Millisecond
	abandon := b.start()
	for range 3 {
		<-torn
	}
	if all := s.All(""); len(all) != 0 {
		t.Errorf("%d files were sent", len(all))
	}
	abandon()
	over.Store(true)
	if err := os.WriteFile(filepath.Join(b.options.Dir, "go"), []byte("now\n"), 0); err != nil {
		t.Fatal(err)
	}
	b.options.Last = b.marks[len(b.marks)-1]
	b.options.Status = func(context.Context, int, uint64) (runner.WaitStatus, bool) { return runner.WaitStatus{}, true }
	if exit := b.run(); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	if all := s.All("job/o/"); len(all["torn"]) < 30000003 || len(all["grows"]) == 0 {
		t.Errorf("at the end there are %d and %d bytes", len(all["torn"]), len(all["grows"]))
	}
}

// TestKept: an output is reported as sent before the first of its files is, so that nothing is in
// storage that nobody knows of. One that stays empty is not.
func TestKept(t *testing.T) {
	for name, through := range map[string]time.Duration{"at the end": time.Hour, "while it runs": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			s := blobtest.New(t)
			b := newBench(t, `echo 1 >${{outputs.o}}/a; mkdir -p outputs; echo 3 >outputs/c; sleep 0.1`)
			s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
				of := "o"
				if strings.HasSuffix(r.URL.Path, "/c") {
					of = berth.OutputsFolder
				}
				if kept := b.kept(); r.Method == http.MethodPut && !slices.Contains(kept, of) {
					t.Errorf("%s was sent when only %q were reported", r.URL.Path, kept)
				}
				return false
			}
			b.launch.Artifacts = s.At("run")
			b.launch.Outputs = map[string]berth.LaunchOutput{
				"o":     {Type: "uri_folder", URL: s.At("job/o")},
				"empty": {Type: "uri_folder", URL: s.At("job/empty")},
			}
			b.options.Through = through
			if exit := b.run(); !exit.OK() {
				t.Errorf("exit %+v", exit)
			}
			if kept, want := b.kept(), []string{berth.OutputsFolder, "o"}; !slices.Equal(kept, want) {
				t.Errorf("something of %q was sent, not of %q", kept, want)
			}
		})
	}
}

// TestThroughAway: storage that is away while the command runs is told once, and costs nothing when
// it is back at the end.
func TestThroughAway(t *testing.T) {
	t.Parallel() // a request that is answered with 503 is repeated for seconds
	for _, status := range []int{http.StatusForbidden, http.StatusServiceUnavailable} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			throughAway(t, status)
		})
	}
}

func throughAway(t *testing.T, status int) {
	s := blobtest.New(t)
	var back atomic.Bool
	s.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		if !back.Load() {
			w.WriteHeader(status)
		}
		return !back.Load()
	}
	b := newBench(t, `mkfifo ../go; echo 1 >${{outputs.o}}/a; read x <../go`)
	b.launch.Outputs = map[string]berth.LaunchOutput{"o": {Type: "uri_folder", URL: s.At("job/o")}}
	b.options.Through = time.Millisecond
	abandon := b.start()
	await(t, "it is told", func() bool { return b.warnings() != "" })
	tried := len(s.Requests())
	await(t, "it is tried again", func() bool { return len(s.Requests()) > tried })
	abandon()
	const want = "what the command writes could not be uploaded while it runs, and is tried again: output o: sending "
	if w := b.warnings(); !strings.Contains(w, want) || strings.Count(w, "\n") > 0 {
		t.Errorf("warnings %q", w)
	}
	back.Store(true)
	if err := os.WriteFile(filepath.Join(b.options.Dir, "go"), []byte("now\n"), 0); err != nil {
		t.Fatal(err)
	}
	b.options.Last = b.marks[len(b.marks)-1]
	b.options.Status = func(context.Context, int, uint64) (runner.WaitStatus, bool) { return runner.WaitStatus{}, true }
	if exit := b.run(); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	if diff := cmp.Diff(map[string]string{"job/o/a": "1\n"}, s.All("")); diff != "" {
		t.Error(diff)
	}
}
