//go:build linux

package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// nobody is a user with no rights.
const nobody = 65534

// TestWithoutRoot: a server that may not make control groups runs the jobs of clusters on nodes
// without limits, and says so in the answer, in an event and in doctor.
func TestWithoutRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir, err := os.MkdirTemp("", "be")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin, home := filepath.Join(dir, "berth"), filepath.Join(dir, "home")
	b, err := os.ReadFile(world.Binary(t)) // which others may not reach
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(bin, b, 0o755), os.Mkdir(home, 0o700), os.Chmod(dir, 0o755), os.Chown(home, nobody, nobody),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	berth := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir = home
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "BERTH_HOME=" + home, "USER=nobody"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	berth("up")
	t.Cleanup(func() {
		cmd := exec.Command(bin, "down")
		cmd.Env = []string{"HOME=" + home, "BERTH_HOME=" + home}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	const note = "limits of nodes are not enforced"
	if out := berth("compute", "create", "--type", "amlcompute", "-n", "cpu", "--size", "Standard_DS1_v2", "-o", "none"); !strings.Contains(out, note) {
		t.Errorf("compute create does not say that limits are not enforced:\n%s", out)
	}
	if out := berth("run", "--on", "cpu", "--no-code", "--", "echo", "it ran"); !strings.Contains(out, "it ran") {
		t.Errorf("the job did not run:\n%s", out)
	}
	if out := berth("doctor"); !strings.Contains(out, note) {
		t.Errorf("doctor does not say that limits are not enforced:\n%s", out)
	}
	if out := berth("explain", "compute/cpu"); !strings.Contains(out, note) {
		t.Errorf("explain does not say that limits are not enforced:\n%s", out)
	}
	berth("compute", "delete", "-n", "cpu", "--yes")
}
