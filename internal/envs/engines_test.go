//go:build engines

package envs_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/internal/docker"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// An engine of a test is a private dockerd or Podman with localhost/python:1 loaded.
type testEngine struct {
	name, host, cache string
	err               error
	stop              func()
}

var (
	enginesOnce sync.Once
	testEngines []*testEngine
)

// eachEngine runs a test on every engine. One that cannot be started is skipped, unless
// BERTH_REQUIRE_ENGINES names it.
func eachEngine(t *testing.T, test func(t *testing.T, c *envs.Cache)) {
	enginesOnce.Do(func() {
		testEngines = []*testEngine{startDocker(), startPodman()}
		for _, e := range testEngines {
			if e.stop != nil {
				atExit = append(atExit, e.stop)
			}
		}
	})
	for _, e := range testEngines {
		t.Run(e.name, func(t *testing.T) {
			if e.err != nil {
				if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), e.name) {
					t.Fatal(e.err)
				}
				t.Skip(e.err)
			}
			test(t, open(t, e.cache, envs.Options{DockerHost: e.host, UV: sharedUV(t)}))
		})
	}
}

func startDocker() *testEngine {
	e := &testEngine{name: "docker"}
	dir, err := os.MkdirTemp("", "bd")
	if err != nil {
		e.err = err
		return e
	}
	e.host, e.cache = "unix://"+dir+"/s", dir+"/cache"
	e.start(dir, nil, "dockerd", "-H", e.host, "--data-root", dir+"/data", "--exec-root", dir+"/x", "--pidfile", dir+"/pid",
		"--bridge=none", "--iptables=false", "--ip-forward=false", "--exec-opt", "native.cgroupdriver=cgroupfs")
	return e
}

func startPodman() *testEngine {
	e := &testEngine{name: "podman"}
	dir, err := os.MkdirTemp("", "bp")
	if err != nil {
		e.err = err
		return e
	}
	e.host, e.cache = "unix://"+dir+"/s", dir+"/cache"
	conf := "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\nlog_driver = \"k8s-file\"\n" +
		"[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\ntmp_dir = \"" + dir + "/tmp\"\n" +
		"[network]\nnetwork_config_dir = \"" + dir + "/net\"\n"
	storage := fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = %q\nrunroot = %q\n", dir+"/root", dir+"/run")
	os.WriteFile(dir+"/containers.conf", []byte(conf), 0o600)
	os.WriteFile(dir+"/storage.conf", []byte(storage), 0o600)
	env := []string{"CONTAINERS_CONF=" + dir + "/containers.conf", "CONTAINERS_STORAGE_CONF=" + dir + "/storage.conf", "BUILDAH_ISOLATION=chroot"}
	e.start(dir, env, "podman", "system", "service", "--time=0", e.host)
	return e
}

// start runs the daemon in the foreground, waits for its answer and loads the image.
func (e *testEngine) start(dir string, env []string, name string, args ...string) {
	log, err := os.Create(dir + "/log")
	if err != nil {
		e.err = err
		return
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if e.err = cmd.Start(); e.err != nil {
		return
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	e.stop = func() {
		e.removeContainers()
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
		unmountBelow(dir)
		os.RemoveAll(dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	cli, err := docker.New(e.host, nil)
	if err != nil {
		e.err = err
		return
	}
	defer cli.Close()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		if err := cli.Ping(ctx); err == nil {
			break
		}
		select {
		case <-ended:
			b, _ := os.ReadFile(dir + "/log")
			e.err = fmt.Errorf("%s ended: %s", name, b)
			return
		case <-ctx.Done():
			e.err = fmt.Errorf("%s does not answer", name)
			return
		case <-tick.C:
		}
	}
	e.err = loadPython(ctx, cli)
}

// loadPython loads localhost/python:1, made of this machine's Python.
func loadPython(ctx context.Context, cli *docker.Client) error {
	tar := filepath.Join(os.TempDir(), fmt.Sprintf("berth-python-%d.tar", os.Getpid()))
	if _, err := os.Stat(tar); err != nil {
		out, err := exec.CommandContext(ctx, "../../e2e/engines/k8s/node/mkpython.sh", tar).CombinedOutput()
		if err != nil {
			return fmt.Errorf("making the image: %v: %s", err, out)
		}
	} else {
		defer os.Remove(tar)
	}
	f, err := os.Open(tar)
	if err != nil {
		return err
	}
	defer f.Close()
	return cli.Load(ctx, f)
}

func (e *testEngine) removeContainers() {
	cli, err := docker.New(e.host, nil)
	if err != nil {
		return
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if cli.Ping(ctx) != nil {
		return
	}
	list, err := cli.List(ctx, "", "")
	if err != nil {
		return
	}
	for _, id := range list {
		cli.Remove(ctx, id)
	}
}

// unmountBelow unmounts what a daemon left, deepest first.
func unmountBelow(dir string) {
	b, _ := os.ReadFile("/proc/mounts")
	lines := strings.Split(string(b), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if f := strings.Fields(lines[i]); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			syscall.Unmount(f[1], 0)
		}
	}
}

const pythonImage = "localhost/python:1"

func start(t *testing.T, c *envs.Container, s envs.ContainerSpec) *envs.Running {
	t.Helper()
	s.Name = "t-" + strings.NewReplacer("/", "-", "#", "-").Replace(t.Name())
	r, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func wait(t *testing.T, r *envs.Running) (int, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code, oom, err := r.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return code, oom
}

func sh(text string) []string { return []string{"/bin/sh", "-c", text} }

func TestImage(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		env, _ := prepare(t, c, berth.LaunchEnv{Image: pythonImage})
		t.Logf("%s: image ready after %v", env.Container.Engine, env.Took)
		dir := t.TempDir()
		var out bytes.Buffer
		begin := time.Now()
		r := start(t, env.Container, envs.ContainerSpec{
			Cmd: sh(`echo "$GREETING"; pwd; printf '\377\000end' >&2; echo made >made; exit 7`), Log: &out,
			Env: []string{"GREETING=hello"}, Workdir: "/work", Mounts: []envs.Mount{{Host: dir, Path: "/work"}},
		})
		code, oom := wait(t, r)
		t.Logf("container run in %v", time.Since(begin))
		if code != 7 || oom {
			t.Errorf("code %d, oom %v, want 7, false", code, oom)
		}
		if got, want := out.String(), "hello\n/work\n\xff\x00end"; got != want {
			t.Errorf("output %q, want %q", got, want)
		}
		if b, _ := os.ReadFile(dir + "/made"); string(b) != "made\n" {
			t.Errorf("the mounted folder holds %q", b)
		}
	})
}

func TestMemoryLimit(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		env, _ := prepare(t, c, berth.LaunchEnv{Image: pythonImage})
		r := start(t, env.Container, envs.ContainerSpec{Cmd: sh(`python3 -c "x = bytearray(400 << 20)"`), Memory: 64 << 20})
		if code, oom := wait(t, r); code != 137 || !oom {
			t.Errorf("code %d, oom %v, want 137, true", code, oom)
		}
	})
}

// Output goes straight to the file, all of it, also through a process that closes late.
func TestLogFile(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		env, _ := prepare(t, c, berth.LaunchEnv{Image: pythonImage})
		file := filepath.Join(t.TempDir(), "log")
		os.WriteFile(file, []byte("before\n"), 0o666)
		const n = 64 << 20
		begin := time.Now()
		r := start(t, env.Container, envs.ContainerSpec{Cmd: sh(fmt.Sprintf("head -c %d /dev/zero; echo last >&2", n)), LogFile: file})
		code, _ := wait(t, r)
		t.Logf("64 MiB of output in %v", time.Since(begin))
		b, _ := os.ReadFile(file)
		if want := len("before\n") + n + len("last\n"); code != 0 || len(b) != want || !bytes.HasSuffix(b, []byte("last\n")) {
			t.Errorf("code %d, %d bytes, want %d", code, len(b), want)
		}
	})
}

// A long stream through the engine arrives whole before Wait returns.
func TestLogStream(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		env, _ := prepare(t, c, berth.LaunchEnv{Image: pythonImage})
		var out bytes.Buffer
		r := start(t, env.Container, envs.ContainerSpec{Cmd: sh("head -c 8000000 /dev/zero; echo last"), Log: &out})
		wait(t, r)
		if out.Len() != 8000000+len("last\n") {
			t.Errorf("%d bytes came", out.Len())
		}
	})
}

// A cancelled command gets the signal wherever it is below the shell, and time to save its state.
func TestCancel(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		env, _ := prepare(t, c, berth.LaunchEnv{Image: pythonImage})
		file := filepath.Join(t.TempDir(), "log")
		os.WriteFile(file, nil, 0o666)
		script := `import signal, sys, time
def save(*_):
    time.sleep(0.5); print("saved", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True: time.sleep(60)`
		r := start(t, env.Container, envs.ContainerSpec{Cmd: []string{"/bin/sh", "-c", `python3 -c "$0"; echo after`, script}, LogFile: file})
		eventually(t, func() bool { b, _ := os.ReadFile(file); return strings.Contains(string(b), "ready") })
		begin := time.Now()
		if err := r.Kill(t.Context(), "SIGTERM"); err != nil {
			t.Fatal(err)
		}
		code, oom := wait(t, r)
		t.Logf("ended %v after the signal with code %d", time.Since(begin), code)
		b, _ := os.ReadFile(file)
		if !strings.Contains(string(b), "saved") || oom {
			t.Errorf("output %q, oom %v", b, oom)
		}
		if err := r.Kill(t.Context(), "SIGKILL"); err != nil {
			t.Errorf("killing what has ended: %v", err)
		}
	})
}

func TestKill(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		env, _ := prepare(t, c, berth.LaunchEnv{Image: pythonImage})
		r := start(t, env.Container, envs.ContainerSpec{Cmd: sh("trap '' TERM; sleep 600"), Memory: 64 << 20})
		if err := r.Kill(t.Context(), "SIGKILL"); err != nil {
			t.Fatal(err)
		}
		if code, oom := wait(t, r); code != 137 || oom {
			t.Errorf("code %d, oom %v, want 137, false", code, oom)
		}
		if err := r.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if _, _, err := r.Wait(t.Context()); berth.CodeOf(err) != berth.NotFound {
			t.Errorf("waiting for a container that is gone: %v", err)
		}
	})
}

// Another process finds the container again and learns how it ended.
func TestAdopt(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		env, _ := prepare(t, c, berth.LaunchEnv{Image: pythonImage})
		label := map[string]string{"ml.berth.task": t.Name()}
		start(t, env.Container, envs.ContainerSpec{Cmd: sh("echo one; sleep 1; echo two; exit 5"), Labels: label})
		var out bytes.Buffer
		r, err := c.Adopt(t.Context(), "ml.berth.task", t.Name(), &out)
		if err != nil || r == nil {
			t.Fatalf("Adopt: %v, %v", r, err)
		}
		if code, _ := wait(t, r); code != 5 || out.String() != "one\ntwo\n" {
			t.Errorf("code %d, output %q", code, out.String())
		}
		if r, err := c.Adopt(t.Context(), "ml.berth.task", "nobody", nil); r != nil || err != nil {
			t.Errorf("Adopt of nothing: %v, %v", r, err)
		}
	})
}

// Packages are added to an image once; the settings used for it do not stay in the image.
func TestImageWithPackages(t *testing.T) {
	t.Setenv("UV_HTTP_TIMEOUT", "77")
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		e := berth.LaunchEnv{Image: pythonImage, Conda: "dependencies: [python=3.8, pip, {pip: [six==1.16.0]}]"}
		cold, k := prepare(t, c, e)
		t.Logf("cold %v: %q", cold.Took, k.progress)
		if len(k.warnings) != 1 || !strings.Contains(k.warnings[0], "3.8") {
			t.Errorf("warnings %q, want one about the version of Python", k.warnings)
		}
		warm, k := prepare(t, c, e)
		t.Logf("warm %v", warm.Took)
		if !warm.Cached || warm.Container.Image != cold.Container.Image || len(k.warnings) != 1 {
			t.Errorf("the second is %+v with warnings %q, want the first again", warm, k.warnings)
		}
		var out bytes.Buffer
		r := start(t, warm.Container, envs.ContainerSpec{Cmd: sh("python -c 'import six; print(six.__version__)'; env"), Log: &out})
		if code, _ := wait(t, r); code != 0 || !strings.HasPrefix(out.String(), "1.16.0\n") || strings.Contains(out.String(), "UV_HTTP") {
			t.Errorf("code %d, output %s", code, out.String())
		}
		for _, ref := range []string{warm.Container.Image, "localhost/berth-env:" + warm.Hash} {
			if _, err := c.Prepare(t.Context(), berth.LaunchEnv{Image: ref}, nil, nil); berth.CodeOf(err) != berth.Denied {
				t.Errorf("the image of an environment by its name %s: %v", ref, err)
			}
		}
		bad := e
		bad.Conda = "dependencies: [{pip: [six==99]}]"
		if _, err := c.Prepare(t.Context(), bad, nil, nil); berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "six==99") {
			t.Errorf("an environment that cannot be: %v", err)
		}
	})
}

func TestBuildContext(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		dir := t.TempDir()
		write := func(name, text string) {
			t.Helper()
			os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("docker/Dockerfile.job", "FROM localhost/python:1\nCOPY . /ctx\nRUN ls -R /ctx >/list\nENV MADE=yes\n")
		write("a.txt", "a")
		write("data/big.bin", "x")
		write(".dockerignore", "data\n")
		e := berth.LaunchEnv{Build: (&url.URL{Scheme: "file", Path: dir}).String(), Dockerfile: "docker/Dockerfile.job"}
		env, k := prepare(t, c, e)
		t.Logf("built in %v: %q", env.Took, k.progress)
		var out bytes.Buffer
		r := start(t, env.Container, envs.ContainerSpec{Cmd: sh("echo $MADE; cat /list"), Log: &out})
		if code, _ := wait(t, r); code != 0 || !strings.Contains(out.String(), "yes") || !strings.Contains(out.String(), "a.txt") || strings.Contains(out.String(), "big.bin") {
			t.Errorf("code %d, output %s", code, out.String())
		}
		if again, _ := prepare(t, c, e); !again.Cached {
			t.Error("the same context was built again")
		}
		write("docker/Dockerfile.job", "FROM localhost/python:1\nRUN echo oh no; exit 4\n")
		if _, err := c.Prepare(t.Context(), e, nil, nil); berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "oh no") {
			t.Errorf("a Dockerfile that ends badly: %v", err)
		}
	})
}

// An image that is not there and cannot be pulled is an error that says so, soon.
func TestPullFails(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		_, err := c.Prepare(t.Context(), berth.LaunchEnv{Image: "127.0.0.1:9/none/such:1"}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "127.0.0.1:9/none/such:1") {
			t.Errorf("Prepare: %v", err)
		}
		t.Log(err)
	})
}

// Images that were made are evicted by size, the oldest first.
func TestImageEviction(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		_, host, _ := strings.Cut(t.Name(), "/")
		for _, e := range testEngines {
			if e.name == host {
				c = open(t, t.TempDir(), envs.Options{DockerHost: e.host, UV: sharedUV(t), MaxBytes: 1})
			}
		}
		mk := func(v string) berth.LaunchEnv {
			return berth.LaunchEnv{Image: pythonImage, Pip: "six==" + v}
		}
		prepare(t, c, mk("1.16.0"))
		prepare(t, c, mk("1.15.0"))
		if env, _ := prepare(t, c, mk("1.15.0")); !env.Cached {
			t.Error("the newer image was evicted")
		}
		if env, _ := prepare(t, c, mk("1.16.0")); env.Cached {
			t.Error("the older image was kept")
		}
	})
}

// What a container uses is told by its engine while it runs, and not after.
func TestStats(t *testing.T) {
	eachEngine(t, func(t *testing.T, c *envs.Cache) {
		env, _ := prepare(t, c, berth.LaunchEnv{Image: pythonImage})
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		box := start(t, env.Container, envs.ContainerSpec{
			Cmd: sh(`exec python3 -c 'x = b"x" * (100 << 20); sum(range(10_000_000)); print("up", flush=True); import time; time.sleep(600)'`), Log: w,
		})
		if _, err := r.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		if pid, err := box.PID(t.Context()); err != nil || pid <= 1 {
			t.Errorf("pid %d, %v", pid, err)
		}
		s, err := box.Stats(t.Context())
		t.Logf("%+v", s)
		if err != nil || s.Memory < 100<<20 || s.CPU < 10*time.Millisecond {
			t.Errorf("stats %+v, %v", s, err)
		}
		if err := box.Kill(t.Context(), "SIGKILL"); err != nil {
			t.Fatal(err)
		}
		wait(t, box)
		if s, err := box.Stats(t.Context()); berth.CodeOf(err) != berth.NotFound {
			t.Errorf("stats of a container that ended: %+v, %v", s, err)
		}
		if pid, err := box.PID(t.Context()); berth.CodeOf(err) != berth.NotFound {
			t.Errorf("pid of a container that ended: %d, %v", pid, err)
		}
	})
}
