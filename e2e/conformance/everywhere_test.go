//go:build linux && engines

package conformance_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestEverywhere runs the example's job file on every kind of target: the models are the same.
func TestEverywhere(t *testing.T) {
	if err := exec.Command("/usr/bin/python3", "-c", "import sklearn").Run(); err != nil {
		if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "kubernetes") {
			t.Fatal("scikit-learn is not installed: apt install python3-sklearn")
		}
		t.Skip("scikit-learn is not installed")
	}
	t.Setenv("PATH", "/usr/bin:"+os.Getenv("PATH"))
	s := startSite(t)
	s.kube.AddImage(t, "localhost/sklearn:1", "/usr/bin/python3*", "/usr/lib/python3.[0-9]*",
		"/usr/lib/python3/dist-packages/numpy*", "/usr/lib/python3/dist-packages/scipy*", "/usr/lib/python3/dist-packages/sklearn*",
		"/usr/lib/python3/dist-packages/joblib*", "/usr/lib/python3/dist-packages/threadpoolctl*", "/usr/lib/python3/dist-packages/decorator*")
	cmd := s.Command()
	var names []string
	for _, x := range s.targets {
		names = append(names, x.name)
	}
	cmd.Path, cmd.Args = "/bin/bash", append([]string{"bash", "../../examples/one-job-everywhere/run.sh"}, names...)
	cmd.Env = append(cmd.Env, "BERTH="+s.Bin)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "the same model everywhere") {
		t.Fatal(err)
	}
}
