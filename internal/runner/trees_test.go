//go:build linux

package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

// eachWay runs a test with mounts, where this process may make them, and without.
func eachWay(t *testing.T, f func(t *testing.T, c *cache.Cache)) {
	for _, mounts := range []bool{true, false} {
		t.Run(fmt.Sprint("mounts ", mounts), func(t *testing.T) {
			if !mounts {
				t.Cleanup(runner.RefuseMounts())
			} else if why := runner.MountTrouble(); why != "" {
				t.Skip(why)
			}
			c, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{Protect: os.Getuid() != 0})
			if err != nil {
				t.Fatal(err)
			}
			f(t, c)
		})
	}
}

func (b *bench) staged() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.reports {
		if r.Staged != "" {
			return r.Staged
		}
	}
	return ""
}

// TestCodeFromCache: a task's code is its own to change, comes to the node once, and what the task
// writes is kept as it always was.
func TestCodeFromCache(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{"code/train.sh": "echo trained", "code/lib/x.txt": "x", "code/lib/old.txt": "old"})
		for i, want := range []string{"brought to the node", "on the node already"} {
			b := newBench(t, `sh ./train.sh && cat lib/x.txt lib/old.txt; echo; ls; sleep 0.1; echo changed >lib/x.txt; rm lib/old.txt; echo new >lib/new; rm train.sh; echo o >outputs/o; mkdir logs; cp lib/x.txt logs/l`)
			b.options.Cache = c
			b.launch.Code, b.launch.CodeVersion = s.At("code"), "version-1"
			b.launch.Artifacts = s.At(fmt.Sprint("run", i))
			if exit := b.run(); !exit.OK() {
				t.Fatalf("exit %+v, log %s", exit, b.log())
			}
			if diff := cmp.Diff("trained\nxold\nlib\noutputs\ntrain.sh\n", b.log()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(map[string]string{"outputs/o": "o\n", "logs/l": "changed\n"}, s.All(fmt.Sprintf("run%d/", i))); diff != "" {
				t.Error(diff)
			}
			if got := b.staged(); !strings.Contains(got, want) || !strings.Contains(got, "code: 3 files") {
				t.Errorf("staged: %s", got)
			}
			if w := b.warnings(); w != "2 files written outside ./outputs were not kept (lib/new, lib/x.txt): write them to ./outputs, or to a named output" {
				t.Error(w)
			}
		}
		var asked []string
		for _, r := range s.Requests() {
			if strings.HasPrefix(r, "GET") {
				asked = append(asked, r)
			}
		}
		if len(asked) != 4 { // the manifest and three files, once
			t.Errorf("asked for %q", asked)
		}
	})
}

// TestCodeWithOutputs: code that brings files for outputs along has them kept, as ever.
func TestCodeWithOutputs(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{"code/outputs/a": "a", "code/logs/b": "b", "code/x": "x"})
		b := newBench(t, `cat outputs/a logs/b x; rm outputs/a; echo n >outputs/n`)
		b.options.Cache = c
		b.launch.Code, b.launch.CodeVersion, b.launch.Artifacts = s.At("code"), "v", s.At("run")
		if exit := b.run(); !exit.OK() || b.log() != "abx" {
			t.Fatalf("exit %+v, log %s", exit, b.log())
		}
		if diff := cmp.Diff(map[string]string{"outputs/n": "n\n", "logs/b": "b"}, s.All("run/")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestInputsFromCache: inputs that are mounted read-only cannot be written to, and are shared;
// downloads are the task's own.
func TestInputsFromCache(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{"data/a": "a", "data/sub/b": "b", "one/file.txt": "one", "m/model.pkl": "pickle"})
		for range 2 {
			b := newBench(t, `cat ${{inputs.mounted}}/a ${{inputs.mounted}}/sub/b ${{inputs.own}}/a ${{inputs.file}} ${{inputs.model}}/model.pkl; echo
basename ${{inputs.file}}
if [ -n "$MOUNTS" ]; then echo x >>${{inputs.mounted}}/a; echo x >${{inputs.mounted}}/new; rm -f ${{inputs.mounted}}/sub/b; fi
echo mine >>${{inputs.own}}/a && rm ${{inputs.own}}/sub/b && echo changed`)
			b.options.Cache = c
			if strings.HasSuffix(t.Name(), "true") {
				b.launch.Env = map[string]string{"MOUNTS": "1"}
			}
			in := func(kind, mode, at string) berth.LaunchInput {
				return berth.LaunchInput{Type: kind, Mode: mode, URL: s.At(at), Version: "v " + at, Ours: true}
			}
			b.launch.Inputs = map[string]berth.LaunchInput{
				"mounted": in("uri_folder", "ReadOnlyMount", "data"), "own": in("uri_folder", "Download", "data"),
				"file": in("uri_file", "", "one/file.txt"), "model": in("custom_model", "ReadOnlyMount", "m/model.pkl"),
			}
			if exit := b.run(); !exit.OK() {
				t.Fatalf("exit %+v, log %s", exit, b.log())
			}
			log := b.log()
			if !strings.HasPrefix(log, "abaonepickle\nfile.txt\n") || !strings.HasSuffix(log, "changed\n") {
				t.Errorf("log %s", log)
			}
			if strings.HasSuffix(t.Name(), "true") && strings.Count(strings.ToLower(log), "read-only file system") < 3 {
				t.Errorf("log %s", log)
			}
			if w := b.warnings(); w != "" {
				t.Error(w)
			}
		}
		manifests := 0
		for _, r := range s.Requests() {
			if strings.HasSuffix(r, " tree") {
				manifests++
			}
		}
		if manifests > 4 { // two inputs of one task may ask for the same at the same time
			t.Errorf("manifests were asked for %d times", manifests)
		}
	})
}

// TestOtherServers: data elsewhere, and what has no manifest, is fetched as ever.
func TestOtherServers(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		s.Set(map[string]string{"code/a": "a", "data/b": "b"})
		b := newBench(t, `cat a ${{inputs.d}}/b`)
		b.options.Cache = c
		b.launch.Code = s.At("code")
		b.launch.Inputs = map[string]berth.LaunchInput{"d": {Type: "uri_folder", URL: s.At("data")}}
		if exit := b.run(); !exit.OK() || b.log() != "ab" || b.staged() != "" {
			t.Errorf("exit %+v, log %s, staged %s", exit, b.log(), b.staged())
		}
	})
}

// TestCacheErrors: what is not there is said as ever.
func TestCacheErrors(t *testing.T) {
	eachWay(t, func(t *testing.T, c *cache.Cache) {
		s := blobtest.New(t)
		b := newBench(t, `echo ran`)
		b.options.Cache = c
		b.launch.Code, b.launch.CodeVersion = s.At("none"), "v"
		if exit := b.run(); exit.Cause != "staging" || !strings.Contains(exit.Reason, "code: there is nothing at") {
			t.Errorf("exit %+v", exit)
		}
	})
}

// TestMountsAreTheTasksOwn: nobody but the task sees its mounts, and none is left.
func TestMountsAreTheTasksOwn(t *testing.T) {
	if why := runner.MountTrouble(); why != "" {
		t.Skip(why)
	}
	c, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := blobtest.New(t)
	s.Set(map[string]string{"code/a": "a"})
	b := newBench(t, `cat /proc/self/mountinfo`)
	b.options.Cache = c
	b.launch.Code, b.launch.CodeVersion = s.At("code"), "v"
	if exit := b.run(); !exit.OK() {
		t.Fatalf("exit %+v, log %s", exit, b.log())
	}
	if !strings.Contains(b.staged(), "overlay") {
		t.Fatal("it is not mounted: ", b.staged())
	}
	if !strings.Contains(b.log(), b.options.Dir) {
		t.Error("the task does not see its mount")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), b.options.Dir) {
		t.Errorf("this process sees it, too: %v", err)
	}
}
