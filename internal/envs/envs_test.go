package envs_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// A real package from the index this machine is set up for, with the uv that is on PATH or that the
// cache fetches.
func TestRealPackage(t *testing.T) {
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	cold, k := prepare(t, c, berth.LaunchEnv{Pip: "six==1.16.0\n"})
	t.Logf("cold %v: %q", cold.Took, k.progress)
	if got := python(t, cold, "import six; print(six.__version__)"); got != "1.16.0" {
		t.Errorf("six is %s", got)
	}
}

func TestWarm(t *testing.T) {
	newIndex(t)
	dir := t.TempDir()
	c := open(t, dir, envs.Options{DockerHost: "none", UV: sharedUV(t)})
	cold, k := prepare(t, c, berth.LaunchEnv{Pip: "some-thing==1.0\nother"})
	t.Logf("cold %v: %q", cold.Took, k.progress)
	if cold.Cached || !k.said("installing 3 packages") {
		t.Errorf("cached %v, progress %q", cold.Cached, k.progress)
	}
	if got := python(t, cold, "import sys; print(sys.prefix)"); got != cold.Dir {
		t.Errorf("the prefix is %s, want %s", got, cold.Dir)
	}
	if pyc, _ := filepath.Glob(cold.Dir + "/lib/python*/site-packages/other/__pycache__/*.pyc"); len(pyc) != 1 {
		t.Errorf("bytecode: %v", pyc)
	}
	again := open(t, dir, envs.Options{DockerHost: "none", UV: "/no/such/uv"})
	var took time.Duration
	for range 20 {
		begin := time.Now()
		warm, _ := prepare(t, again, berth.LaunchEnv{Pip: "# the same\nOther\nSome_Thing == 1.0"})
		took += time.Since(begin)
		if !warm.Cached || warm.Dir != cold.Dir || warm.Hash != cold.Hash || warm.Vars["VIRTUAL_ENV"] != cold.Dir || warm.PathPrefix[0] != cold.Dir+"/bin" {
			t.Errorf("the second is %+v, want the first again", warm)
		}
	}
	t.Logf("warm %v", took/20)
	if took/20 > cold.Took/2 {
		t.Errorf("attaching takes %v, making it took %v", took/20, cold.Took)
	}
}

func TestHost(t *testing.T) {
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none"})
	for _, name := range []string{"", "none", "host"} {
		if env, k := prepare(t, c, berth.LaunchEnv{Name: name}); env.Dir != "" || env.Container != nil || len(env.PathPrefix) > 0 || len(k.warnings) > 0 {
			t.Errorf("%q: %+v", name, env)
		}
	}
}

func TestImageWithoutEngine(t *testing.T) {
	newIndex(t)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	image := berth.LaunchEnv{Name: "mine", Image: "example/base:1"}
	_, err := c.Prepare(t.Context(), image, nil, nil)
	if berth.CodeOf(err) != berth.Unsupported || !strings.Contains(err.Error(), "example/base:1") || !strings.Contains(err.Error(), "--environment host") {
		t.Errorf("an image alone: %v", err)
	}
	image.Host = true
	if env, k := prepare(t, c, image); env.Dir != "" || len(k.warnings) != 1 || !strings.Contains(k.warnings[0], "runs on the node as it is") {
		t.Errorf("on the host: %+v, %q", env, k.warnings)
	}
	image.Host, image.Conda = false, "dependencies: [pip, {pip: [thing]}]"
	if env, k := prepare(t, c, image); env.Dir == "" || len(k.warnings) != 1 || !strings.Contains(k.warnings[0], "example/base:1 was not used") {
		t.Errorf("with packages: %+v, %q", env, k.warnings)
	}
}

func TestNoEngineAnswers(t *testing.T) {
	c := open(t, t.TempDir(), envs.Options{DockerHost: "unix://" + t.TempDir() + "/none.sock"})
	_, err := c.Prepare(t.Context(), berth.LaunchEnv{Image: "x"}, nil, nil)
	if berth.CodeOf(err) != berth.Unsupported || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("Prepare: %v", err)
	}
}

// TestBusyEngine: one that has much to do is waited for. A job that names an image must not run
// without it because of that.
func TestBusyEngine(t *testing.T) {
	dir, err := os.MkdirTemp("", "be") // short, for its socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	busy := time.After(3 * time.Second)
	engine := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case strings.HasSuffix(r.URL.Path, "/version"):
			select {
			case <-busy:
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, `{"Version":"20.10","ApiVersion":"1.41"}`)
		default:
			http.Error(w, `{"message":"no such thing here"}`, http.StatusBadRequest)
		}
	})}
	go func() { _ = engine.Serve(l) }()
	defer engine.Close()
	c := open(t, t.TempDir(), envs.Options{DockerHost: "unix://" + l.Addr().String()})
	if _, err := c.Prepare(t.Context(), berth.LaunchEnv{Image: "x"}, nil, nil); err == nil || !strings.Contains(err.Error(), "no such thing here") {
		t.Errorf("Prepare: %v", err)
	}
}

// TestOwnImagesAreNotNamed: an image that was made for somebody's environment holds their files,
// and is not used by who guesses its name or id.
func TestOwnImagesAreNotNamed(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		names := `["localhost/berth-build:abc"]`
		if strings.Contains(r.URL.Path, "/public") {
			names = `["localhost/berth-build:abc","localhost/public:1"]`
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case strings.HasSuffix(r.URL.Path, "/version"):
			_, _ = io.WriteString(w, `{"Version":"20.10","ApiVersion":"1.41"}`)
		default:
			_, _ = io.WriteString(w, `{"Id":"sha256:feed","RepoTags":`+names+`}`)
		}
	}))
	defer engine.Close()
	c := open(t, t.TempDir(), envs.Options{DockerHost: strings.Replace(engine.URL, "http:", "tcp:", 1)})
	for ref, ok := range map[string]bool{
		"localhost/berth-env:abc": false, "localhost/berth-build:abc": false, "berth-build:abc": false, "localhost/berth-env@sha256:feed": false,
		"localhost/berth-env": false, "sha256:feed": false, "feed": false, "localhost/public:1": true,
	} {
		if _, err := c.Prepare(t.Context(), berth.LaunchEnv{Image: ref}, nil, nil); ok != (err == nil) || !ok && berth.CodeOf(err) != berth.Denied {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// TestDockerfileNamesNoOwnImage: nor is it used by a Dockerfile, in whatever way that names it.
func TestDockerfileNamesNoOwnImage(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
		case strings.HasSuffix(r.URL.Path, "/version"):
			_, _ = io.WriteString(w, `{"Version":"20.10","ApiVersion":"1.41"}`)
		case strings.Contains(r.URL.Path, "/images/feed"):
			_, _ = io.WriteString(w, `{"Id":"sha256:feed","RepoTags":["localhost/berth-build:abc"]}`)
		case strings.HasSuffix(r.URL.Path, "/build"):
			http.Error(w, `{"message":"it would be built"}`, http.StatusInternalServerError)
		default:
			http.Error(w, `{"message":"no such image"}`, http.StatusNotFound)
		}
	}))
	defer engine.Close()
	c := open(t, t.TempDir(), envs.Options{DockerHost: strings.Replace(engine.URL, "http:", "tcp:", 1)})
	for text, code := range map[string]berth.Code{
		"FROM localhost/berth-build:abc": berth.Denied,
		"from --platform=linux/amd64 \\\n # a comment\n  LOCALHOST/Berth-Env@sha256:feed AS x": berth.Denied,
		"FR\\\nOM berth-build:abc":                                                       berth.Denied,
		"# escape=`\nFROM `\nlocalhost/berth-build:abc":                                  berth.Denied,
		"ARG A=localhost/ber\nARG B=${A}th-build\nFROM ${B}:abc":                         berth.Denied,
		"FROM ${X:-localhost/berth-env}":                                                 berth.Denied,
		"FROM containers-storage:localhost/berth-env:abc":                                berth.Denied,
		"FROM alpine\nCOPY --chown=1 --from=localhost/berth-build:abc / /":               berth.Denied,
		"FROM alpine\nONBUILD COPY --from=localhost/berth-build:abc / /":                 berth.Denied,
		"FROM alpine\nRUN --mount=type=bind,from=localhost/berth-build:abc,target=/x ls": berth.Denied,
		"FROM feed": berth.Denied,
		"FROM alpine\nRUN <<E\nx\\\nE\nFROM localhost/berth-env:a": berth.Denied,
		"FROM $UNKNOWN":                         berth.Invalid,
		"FROM alpine\nCOPY --from=$UNKNOWN / /": berth.Invalid,
		"ARG V=3\nFROM alpine:${V} AS base\nFROM scratch\nCOPY --from=base / /\nCOPY --from=0 / /\nRUN echo $HOME localhost/berth-env": "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := c.Prepare(t.Context(), berth.LaunchEnv{Build: "file://" + dir}, nil, nil)
		if code == "" {
			if err == nil || !strings.Contains(err.Error(), "it would be built") {
				t.Errorf("%s: %v", text, err)
			}
		} else if berth.CodeOf(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestBadEnvironment(t *testing.T) {
	x := newIndex(t)
	dir := t.TempDir()
	c := open(t, dir, envs.Options{DockerHost: "none", UV: sharedUV(t)})
	_, err := c.Prepare(t.Context(), berth.LaunchEnv{Conda: "dependencies: [{pip: [no-such-thing>=3]}]"}, nil, nil)
	if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "no-such-thing") || !strings.Contains(err.Error(), ".log") {
		t.Errorf("a package that is not there: %v", err)
	}
	x.Close()
	t.Setenv("UV_HTTP_RETRIES", "0")
	t.Setenv("PIP_INDEX_URL", strings.Replace(x.URL, "http://", "http://user:secret@", 1)+"/simple")
	_, err = c.Prepare(t.Context(), berth.LaunchEnv{Pip: "thing-two"}, nil, nil)
	if berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("an index that does not answer: %v", err)
	}
	logs, _ := filepath.Glob(dir + "/logs/*.log")
	for _, l := range logs {
		if b, _ := os.ReadFile(l); strings.Contains(string(b), "secret") {
			t.Errorf("the password is in the log:\n%s", b)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in %v", err)
	}
}

func TestPythonVersion(t *testing.T) {
	dir := t.TempDir()
	o := envs.Options{DockerHost: "none", UV: sharedUV(t), NoPythonDownload: true}
	e := berth.LaunchEnv{Conda: "dependencies: [python=3.2]"}
	for range 2 { // the warning comes with the cached environment too
		env, k := prepare(t, open(t, dir, o), e)
		if len(k.warnings) != 1 || !strings.Contains(k.warnings[0], "3.2") || !strings.Contains(k.warnings[0], "is used instead") {
			t.Errorf("warnings %q", k.warnings)
		}
		if !strings.HasPrefix(env.Python, "3.") {
			t.Errorf("Python is %q", env.Python)
		}
	}
	o.StrictPython = true
	_, err := open(t, t.TempDir(), o).Prepare(t.Context(), e, nil, nil)
	if berth.CodeOf(err) != berth.Unsupported || !strings.Contains(err.Error(), "this node has 3.") {
		t.Errorf("strict: %v", err)
	}
}

// Many processes with many goroutines each build one environment once.
func TestConcurrentProcesses(t *testing.T) {
	newIndex(t)
	job := childJob{Dir: t.TempDir(), UV: sharedUV(t), Env: berth.LaunchEnv{Pip: "thing==1.0"}, Times: 4}
	type outcome struct {
		results []childResult
		err     error
	}
	outcomes := make(chan outcome)
	for range 4 {
		cmd := childCommand(t, job)
		go func() {
			b, err := cmd.Output()
			var o outcome
			o.err = errors.Join(err, json.Unmarshal(b, &o.results))
			outcomes <- o
		}()
	}
	built := 0
	for range 4 {
		o := <-outcomes
		if o.err != nil {
			t.Fatal(o.err)
		}
		for _, r := range o.results {
			if r.Err != "" {
				t.Error(r.Err)
			}
			if !r.Cached {
				built++
			}
		}
	}
	if built != 1 {
		t.Errorf("it was built %d times", built)
	}
}

// A builder that is killed leaves an orphaned uv. Nobody touches the directory before that has
// ended, and then it is built again from the start.
func TestKilledBuilder(t *testing.T) {
	x := newIndex(t)
	release := make(chan struct{})
	x.setHold(release)
	dir := t.TempDir()
	e := berth.LaunchEnv{Pip: "thing==1.0"}
	cmd := childCommand(t, childJob{Dir: dir, UV: sharedUV(t), Env: e, Times: 1})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-x.held // uv waits for its download
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	c := open(t, dir, envs.Options{DockerHost: "none", UV: sharedUV(t)})
	half, _ := filepath.Glob(dir + "/envs/*")
	if len(half) != 1 {
		t.Fatalf("the half-built environment is not there: %v", half)
	}
	var k talk
	done := make(chan error, 1)
	go func() {
		env, err := c.Prepare(t.Context(), e, k.say, k.warn)
		if err == nil {
			if env.Cached {
				err = errors.New("the half-built environment was taken")
			}
			env.Release()
		}
		done <- err
	}()
	eventually(t, func() bool { return k.said("waiting for another job") })
	x.setHold(nil)
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	env, _ := prepare(t, c, e)
	if got := python(t, env, "import thing; print(thing.__version__)"); got != "1.0" || !env.Cached {
		t.Errorf("thing is %s, cached %v", got, env.Cached)
	}
}

// What a crash left is swept when the cache is opened.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, envs.Options{})
	for _, d := range []string{"envs/0123", "trash/4567-1"} {
		if err := os.MkdirAll(filepath.Join(dir, d, "lib"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, envs.Options{})
	for _, d := range []string{"envs/0123", "trash/4567-1"} {
		if _, err := os.Stat(filepath.Join(dir, d)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func TestCancelledBuild(t *testing.T) {
	x := newIndex(t)
	release := make(chan struct{})
	x.setHold(release)
	defer close(release)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-x.held; cancel() }()
	if _, err := c.Prepare(ctx, berth.LaunchEnv{Pip: "thing==1.0"}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("Prepare: %v", err)
	}
	x.setHold(nil)
	if env, _ := prepare(t, c, berth.LaunchEnv{Pip: "thing==1.0"}); env.Cached {
		t.Error("the cancelled build was taken")
	}
}

// The least recently used environments go, the ones in use stay.
func TestEviction(t *testing.T) {
	newIndex(t)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t), MaxBytes: 3_300_000})
	mk := func(name string) *envs.Env {
		env, _ := prepare(t, c, berth.LaunchEnv{Pip: name + "==1000.0"}) // a megabyte each: two fit
		return env
	}
	held := mk("held")
	old := mk("old")
	old.Release()
	newer := mk("newer") // over the limit: held is older, but in use
	for _, e := range []struct {
		name  string
		env   *envs.Env
		there bool
	}{{"held", held, true}, {"old", old, false}, {"newer", newer, true}} {
		if _, err := os.Stat(e.env.Dir); (err == nil) != e.there {
			t.Errorf("%s: there %v, want %v", e.name, err == nil, e.there)
		}
	}
	if again := mk("held"); !again.Cached {
		t.Error("an environment in use was built again")
	}
}

// One that was used later stays, though it was built first.
func TestEvictionByUse(t *testing.T) {
	newIndex(t)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t), MaxBytes: 3_300_000})
	mk := func(name string) *envs.Env {
		env, _ := prepare(t, c, berth.LaunchEnv{Pip: name + "==1000.0"})
		env.Release()
		return env
	}
	first, second := mk("first"), mk("second")
	mk("first")
	mk("third")
	if _, err := os.Stat(first.Dir); err != nil {
		t.Errorf("the one used last: %v", err)
	}
	if _, err := os.Stat(second.Dir); err == nil {
		t.Error("the one not used for longest is still there")
	}
}

// A job that installs into a shared environment does not change it for the next one.
func TestChangedEnvironment(t *testing.T) {
	newIndex(t)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	e := berth.LaunchEnv{Pip: "thing==1.0"}
	first, _ := prepare(t, c, e)
	python(t, first, "import thing")
	if again, _ := prepare(t, c, e); !again.Cached {
		t.Error("an import counted as a change")
	} else {
		again.Release()
	}
	sites, _ := filepath.Glob(first.Dir + "/lib/python*/site-packages")
	if err := os.WriteFile(sites[0]+"/extra.py", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	used, k := prepare(t, c, e)
	if !used.Cached || len(k.warnings) != 1 || !strings.Contains(k.warnings[0], "still runs") {
		t.Errorf("while it is used: cached %v, %q", used.Cached, k.warnings)
	}
	used.Release()
	first.Release()
	fresh, _ := prepare(t, c, e)
	if _, err := os.Stat(sites[0] + "/extra.py"); fresh.Cached || err == nil {
		t.Errorf("afterwards: cached %v, %v", fresh.Cached, err)
	}
}

// A conda program on PATH solves files with packages that are not Python.
func TestCondaProgram(t *testing.T) {
	newIndex(t)
	bin, record := t.TempDir(), filepath.Join(t.TempDir(), "args")
	// It makes what micromamba would: a prefix with an interpreter.
	script := "#!/bin/sh\necho \"$@\" >" + record + "\nwhile [ $# -gt 0 ]; do case $1 in -p) p=$2;; -f) f=$2;; esac; shift; done\n" +
		"mkdir -p $p/bin $p/lib/python3.10 && cp $f $p/solved.yml && ln -s /bin/true $p/bin/python\n"
	if err := os.WriteFile(bin+"/micromamba", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	e := conda("python=3.10", "r-base=4.1", "pip", "pip: [thing]")
	env, _ := prepare(t, c, e)
	if b, err := os.ReadFile(env.Dir + "/solved.yml"); err != nil || string(b) != e.Conda {
		t.Errorf("the program got %q, %v", b, err)
	}
	if b, _ := os.ReadFile(record); !strings.HasPrefix(string(b), "create --yes -p "+env.Dir+" -f ") {
		t.Errorf("its arguments are %q", b)
	}
	if env.Vars["CONDA_PREFIX"] != env.Dir || env.Python != "3.10" {
		t.Errorf("%+v", env)
	}
	if again, _ := prepare(t, c, e); !again.Cached {
		t.Error("it was solved twice")
	}
}
