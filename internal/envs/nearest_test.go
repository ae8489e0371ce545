package envs_test

import (
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// A version that is on conda's channels only becomes the nearest one of the index, and everybody
// who uses the environment is told so. What a conda program would have brought is there.
func TestCondaOnlyVersion(t *testing.T) {
	newIndex(t)
	c := open(t, t.TempDir(), envs.Options{DockerHost: "none", UV: sharedUV(t)})
	e := berth.LaunchEnv{Conda: "dependencies:\n- thing=1.2.7\n- other==2.0.1\n"}
	for range 2 {
		env, k := prepare(t, c, e)
		if got := python(t, env, "import thing, other, setuptools, wheel, pip; print(thing.__version__, other.__version__)"); got != "1.2.5 2.0" {
			t.Errorf("installed: %s", got)
		}
		said := strings.Join(k.warnings, "\n")
		for _, want := range []string{"conda package thing 1.2.7.* is not on the package index: the nearest release there, 1.2.5, was installed", "conda package other 2.0.1 is not"} {
			if !strings.Contains(said, want) {
				t.Errorf("warnings %q, want %s", k.warnings, want)
			}
		}
	}
	var k talk
	if _, err := c.Prepare(t.Context(), berth.LaunchEnv{Pip: "thing==1.2.7"}, k.say, k.warn); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a requirements file means what it says: %v, %q", err, k.warnings)
	}
}
