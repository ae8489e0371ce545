//go:build linux

package kubetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// AddImage gives the cluster an image with busybox, curl, and files of this machine: what a shell
// pattern of paths names, with the libraries that shared objects below them need.
func (c *Cluster) AddImage(t testing.TB, name string, patterns ...string) {
	t.Helper()
	path := c.path("added.tar")
	script := `set -e
list() { find "$@" -type f \( -name '*.so*' -o -perm -100 \) -not -name '*.py'; }
libs=$(list ` + strings.Join(patterns, " ") + ` | xargs ldd 2>/dev/null | grep -v ':$' | grep -o '/[^ )]*\.so[^ )]*' | sort -u)
tar -chf ` + path + ` --exclude=__pycache__ --exclude=tests --exclude=test -C / ` + strings.Join(patterns, " ") + ` $libs 2>/dev/null`
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil { //nolint:noctx // the test has a limit
		t.Fatalf("files of an image: %v\n%s", err, out)
	}
	layer, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(mustPath("busybox"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := exec.Command("busybox", "--list").Output() //nolint:noctx // it returns at once
	if err != nil {
		t.Fatal(err)
	}
	if err := writeImage(path, name, program, strings.Fields(string(names)), layer); err != nil {
		t.Fatal(err)
	}
	if out, err := c.limited("ctr", "-a", c.path("c.sock"), "-n", "k8s.io", "images", "import", path); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
