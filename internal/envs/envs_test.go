package envs_test

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// talk collects what Prepare says.
type talk struct {
	mu       sync.Mutex
	progress []string
	warnings []string
}

func (k *talk) say(s string)  { k.mu.Lock(); k.progress = append(k.progress, s); k.mu.Unlock() }
func (k *talk) warn(s string) { k.mu.Lock(); k.warnings = append(k.warnings, s); k.mu.Unlock() }

func open(t *testing.T, dir string, o envs.Options) *envs.Cache {
	t.Helper()
	c, err := envs.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func prepare(t *testing.T, c *envs.Cache, e berth.LaunchEnv) (*envs.Env, *talk) {
	t.Helper()
	var k talk
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	env, err := c.Prepare(ctx, e, k.say, k.warn)
	if err != nil {
		t.Fatalf("Prepare: %v\nprogress: %q", err, k.progress)
	}
	t.Cleanup(env.Release)
	return env, &k
}

func python(t *testing.T, env *envs.Env, code string) string {
	t.Helper()
	out, err := exec.Command(env.Dir+"/bin/python", "-c", code).CombinedOutput()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPipAndWarm(t *testing.T) {
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none"})
	e := berth.LaunchEnv{Pip: "six==1.16.0\n"}
	cold, k := prepare(t, c, e)
	t.Logf("cold %v, %q", cold.Took, k.progress)
	if got := python(t, cold, "import six; print(six.__version__)"); got != "1.16.0" {
		t.Errorf("six is %s", got)
	}
	warm, _ := prepare(t, c, berth.LaunchEnv{Pip: "# the same\nSix == 1.16.0"})
	t.Logf("warm %v", warm.Took)
	if !warm.Cached || warm.Dir != cold.Dir || warm.Hash != cold.Hash {
		t.Errorf("the second is %+v, want the first again", warm)
	}
}
