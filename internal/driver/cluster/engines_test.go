//go:build engines && linux

package cluster_test

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/cluster"
)

const image = "localhost/berth-busybox:1"

// docker starts a dockerd of the test's own with an image of busybox, and returns how to call it.
func docker(t *testing.T) (host string, ctl func(in []byte, args ...string) (string, error)) {
	t.Helper()
	missing := t.Skipf
	if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "docker") {
		missing = t.Fatalf
	}
	path, err := exec.LookPath("busybox")
	if err != nil {
		missing("no busybox: %v", err)
	}
	dir, err := os.MkdirTemp("", "bcd")
	if err != nil {
		t.Fatal(err)
	}
	host = "unix://" + dir + "/s"
	cmd := exec.Command("dockerd", "-H", host, "--data-root", dir+"/data", "--exec-root", dir+"/x", "--pidfile", dir+"/pid",
		"--bridge=none", "--iptables=false", "--ip-forward=false", "--exec-opt", "native.cgroupdriver=cgroupfs")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		missing("no dockerd: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		mounts, _ := os.ReadFile("/proc/mounts")
		for l := range strings.Lines(string(mounts)) {
			if f := strings.Fields(l); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
				_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
			}
		}
		os.RemoveAll(dir)
	})
	ctl = func(in []byte, args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), "docker", append([]string{"-H", host}, args...)...)
		c.Stdin = bytes.NewReader(in)
		out, err := c.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	wait(t, "dockerd", func() bool { _, err := ctl(nil, "version"); return err == nil })
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, d := range []string{"bin", "tmp"} {
		_ = w.WriteHeader(&tar.Header{Name: d + "/", Typeflag: tar.TypeDir, Mode: 0o777})
	}
	_ = w.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))})
	_, _ = w.Write(program)
	for _, n := range []string{"sh", "sleep", "echo", "cat"} {
		_ = w.WriteHeader(&tar.Header{Name: "bin/" + n, Typeflag: tar.TypeSymlink, Linkname: "busybox"})
	}
	w.Close()
	if out, err := ctl(b.Bytes(), "import", "-", image); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return host, ctl
}

// TestContainers gives back nodes whose tasks run in containers: those go with the node, even when
// its host was killed before, and the node's memory is their limit.
func TestContainers(t *testing.T) {
	engine, ctl := docker(t)
	ctx := limited(t)
	_, dir := open(t)
	x, err := cluster.Open(driver.Config{
		Name: "cluster", Dir: dir, Host: []string{os.Args[0], "_host"}, Environments: driver.Environments{Engine: engine},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := x.(*cluster.Driver)
	defer d.Close()
	for _, killed := range []bool{false, true} {
		add(t, d, driver.NodeSpec{Name: "n", CPUs: 1, Memory: 128 << 20, Slots: 1})
		l := berth.Launch{
			Task: "a.1", Node: "n", Command: "echo up; sleep 600", LogFile: filepath.Join(t.TempDir(), "log"),
			Environment: berth.LaunchEnv{Image: image},
		}
		if _, err := d.Start(ctx, l); err != nil {
			t.Fatal(err)
		}
		wait(t, "the container", func() bool { b, _ := os.ReadFile(l.LogFile); return string(b) == "up\n" })
		var id string
		wait(t, "the engine to know of it", func() bool { id, _ = ctl(nil, "ps", "-q"); return id != "" })
		if limit, err := ctl(nil, "inspect", "-f", "{{.HostConfig.Memory}}", id); err != nil || limit != "134217728" {
			t.Errorf("its limit is %s, %v", limit, err)
		}
		if killed {
			kill(t, filepath.Join(dir, "n"))
		}
		began := time.Now()
		if err := d.RemoveNode(ctx, "n"); err != nil {
			t.Fatal(err)
		}
		t.Logf("host killed %v: given back after %v", killed, time.Since(began))
		if left, err := ctl(nil, "ps", "-aq"); err != nil || left != "" {
			t.Errorf("containers %q are left (host killed before: %v), %v", left, killed, err)
		}
	}
}
