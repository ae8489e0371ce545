//go:build linux

package runner_test

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/runner/cache"
)

// environments is a cache for all tests: uv and pip are fetched once.
var environments = sync.OnceValues(func() (*envs.Cache, error) {
	dir, err := os.MkdirTemp("", "berth-envs-")
	if err != nil {
		return nil, err
	}
	atExit = append(atExit, func() { os.RemoveAll(dir) })
	return envs.Open(dir, envs.Options{DockerHost: "none"})
})

func withEnvironments(t *testing.T) *envs.Cache {
	t.Helper()
	c, err := environments()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// gift makes a package with a module and a program, and returns its wheel.
func gift(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gift-"+version+"-py3-none-any.whl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	info := "gift-" + version + ".dist-info/"
	for name, text := range map[string]string{
		"gift.py":                 fmt.Sprintf("__version__ = %q\ndef main(): print('gift says', __version__)\n", version),
		info + "METADATA":         "Metadata-Version: 2.1\nName: gift\nVersion: " + version + "\n",
		info + "WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "entry_points.txt": "[console_scripts]\ngift-says = gift:main\n",
		info + "RECORD":           fmt.Sprintf("gift.py,,\n%[1]sMETADATA,,\n%[1]sWHEEL,,\n%[1]sentry_points.txt,,\n%[1]sRECORD,,\n", info),
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPrivateEnvironment: what a command installs into its environment, or removes from it, is so
// for this command only, and gone with it.
func TestPrivateEnvironment(t *testing.T) {
	first, second := gift(t, "1.0"), gift(t, "2.0")
	eachWay(t, func(t *testing.T, _ *cache.Cache) {
		c := withEnvironments(t)
		install := func(wheel string) string {
			return "set -e; ! python -c 'import gift' 2>/dev/null; pip install -q --no-index " + wheel +
				"; python -c 'import gift, sys; print(gift.__version__, sys.prefix == __import__(\"os\").environ[\"VIRTUAL_ENV\"])'; gift-says; pip uninstall -qy pip || true; " +
				"python -m pip --version >/dev/null 2>&1 && echo pip stays || echo pip went"
		}
		for i, wheel := range []string{first, second} {
			b := newBench(t, install(wheel))
			b.options.Envs, b.launch.Environment = c, berth.LaunchEnv{Name: envs.Python}
			if exit := b.run(); !exit.OK() {
				t.Fatalf("exit %+v, log %s", exit, b.log())
			}
			version := fmt.Sprintf("%d.0", i+1)
			if log := b.log(); !strings.Contains(log, version+" True\ngift says "+version+"\n") {
				t.Errorf("log %s", log)
			}
			if strings.HasSuffix(t.Name(), "true") && !strings.HasSuffix(b.log(), "pip went\n") {
				t.Errorf("pip was not removed: %s", b.log())
			}
			if _, err := os.Stat(filepath.Join(b.options.Dir, "env")); !os.IsNotExist(err) {
				t.Errorf("what the command changed is still there: %v", err)
			}
		}
		env, err := c.Prepare(t.Context(), berth.LaunchEnv{Name: envs.Python}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer env.Release()
		if out, err := exec.Command(env.Dir+"/bin/python", "-m", "pip", "list", "--format=freeze").CombinedOutput(); err != nil || !env.Cached || strings.Contains(string(out), "gift") {
			t.Errorf("the environment as it is kept: cached %v, %v\n%s", env.Cached, err, out)
		}
	})
}

// TestPrivateMachine: a command that runs on the machine as it is changes nothing for others.
func TestPrivateMachine(t *testing.T) {
	c := withEnvironments(t)
	if out, err := exec.Command("python3", "-m", "pip", "--version").CombinedOutput(); err != nil {
		t.Skipf("the machine's Python has no pip: %s", out)
	}
	machine := filepath.Join(t.TempDir(), "machine") // stands for the machine's
	if out, err := exec.Command("python3", "-m", "venv", "--without-pip", "--system-site-packages", machine).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(command string) string {
		t.Helper()
		b := newBench(t, command)
		b.options.Envs = c
		b.launch.Env = map[string]string{"VIRTUAL_ENV": machine, "PATH": machine + "/bin:" + os.Getenv("PATH")}
		if exit := b.run(); !exit.OK() {
			t.Fatalf("exit %+v, log %s", exit, b.log())
		}
		return b.log()
	}
	before := gift(t, "1.0")
	if out, err := exec.Command(machine+"/bin/python", "-m", "pip", "install", "-q", "--no-index", before).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Symlink("gift-says", filepath.Join(machine, "bin", "gift-link")); err != nil { // as pip can be one to pip3.11
		t.Fatal(err)
	}
	if log := run("gift-says; python -c 'import gift; print(gift.__version__)'"); log != "gift says 1.0\n1.0\n" {
		t.Errorf("what the machine has: %s", log)
	}
	log := run("set -e; python -m pip install -q --no-index " + gift(t, "2.0") + "; gift-says; gift-link; python3 -c 'import gift; print(gift.__version__)'; test $VIRTUAL_ENV != " + machine)
	if !strings.HasSuffix(log, "gift says 2.0\ngift says 2.0\n2.0\n") {
		t.Errorf("what the command installed: %s", log)
	}
	run("python -m pip uninstall -qy gift || true")
	if out, err := exec.Command(machine + "/bin/gift-says").CombinedOutput(); err != nil || string(out) != "gift says 1.0\n" {
		t.Errorf("the machine afterwards: %v\n%s", err, out)
	}
}

// TestPrivateMachineUnmoved: what one command says about Python is not what others get.
func TestPrivateMachineUnmoved(t *testing.T) {
	c, err := envs.Open(t.TempDir(), envs.Options{DockerHost: "none"})
	if err != nil {
		t.Fatal(err)
	}
	for name, first := range map[string]func(evil string) map[string]string{
		"module": func(evil string) map[string]string { return map[string]string{"PYTHONPATH": evil} },
		"user": func(evil string) map[string]string {
			out, err := exec.Command("python3", "-c", "import site; print(site.getusersitepackages())").Output()
			home, _ := os.UserHomeDir()
			rel, ok := strings.CutPrefix(strings.TrimSpace(string(out)), home+"/.local")
			if err != nil || !ok {
				t.Skipf("the user's packages are in %s, %v", out, err)
			}
			if err := os.MkdirAll(evil+rel, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(evil+rel+"/gift.py", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return map[string]string{"PYTHONUSERBASE": evil}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			machine, evil := filepath.Join(dir, "machine"), filepath.Join(dir, "evil")
			if out, err := exec.Command("python3", "-m", "venv", "--without-pip", "--system-site-packages", machine).CombinedOutput(); err != nil {
				t.Skipf("no virtual environment could be made: %v\n%s", err, out)
			}
			if err := os.Mkdir(evil, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(evil+"/json.py", []byte("raise SystemExit(1)\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			run := func(env map[string]string, command string) string {
				b := newBench(t, command)
				b.options.Envs = c
				b.launch.Env = map[string]string{"VIRTUAL_ENV": machine, "PATH": machine + "/bin:" + os.Getenv("PATH")}
				for k, v := range env {
					b.launch.Env[k] = v
				}
				if exit := b.run(); !exit.OK() {
					t.Fatalf("exit %+v, log %s", exit, b.log())
				}
				return b.log()
			}
			run(first(evil), "true python")
			if log := run(nil, "test $VIRTUAL_ENV != "+machine+" && echo private; python -c 'import gift' 2>/dev/null || echo none"); log != "private\nnone\n" {
				t.Errorf("the next command has %q", log)
			}
		})
	}
}

// BenchmarkPrivate is what it costs to make an environment private.
func BenchmarkPrivate(b *testing.B) {
	c, err := environments()
	if err != nil {
		b.Fatal(err)
	}
	env, err := c.Prepare(b.Context(), berth.LaunchEnv{Name: envs.Python}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	env.Release()
	for i := 0; b.Loop(); i++ {
		e, err := c.Prepare(b.Context(), berth.LaunchEnv{Name: envs.Python}, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Layer(filepath.Join(b.TempDir(), fmt.Sprint(i))); err != nil {
			b.Fatal(err)
		}
		e.Release()
	}
}
