//go:build linux

package kubetest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Stop ends all pods and then everything else, and leaves nothing behind.
func (c *Cluster) Stop(t testing.TB) {
	if c.procs["kube-apiserver"] != nil && c.procs["kubelet"] != nil { // only the kubelet takes their networks down
		_, _ = c.Kubectl("delete", "jobs", "-A", "--all", "--wait=false")
		_, _ = c.Kubectl("delete", "pods", "-A", "--all", "--grace-period=1", "--wait=true", "--timeout=20s")
		for deadline := time.Now().Add(15 * time.Second); c.tasks() != "" && time.Now().Before(deadline); {
			time.Sleep(100 * time.Millisecond)
		}
	}
	c.end("kubelet")
	if c.procs["containerd"] != nil {
		for id := range strings.FieldsSeq(c.tasks()) {
			_, _ = c.ctr("tasks", "kill", "-s", "SIGKILL", id)
		}
		for id := range strings.FieldsSeq(c.tasks()) {
			_, _ = c.ctr("tasks", "rm", "-f", id)
		}
	}
	for _, name := range []string{"kueue", "kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd", "containerd"} {
		c.end(name)
	}
	if c.names != nil {
		c.names.conn.Close()
	}
	c.clear()
	if c.forward != nil {
		_ = os.WriteFile("/proc/sys/net/ipv4/ip_forward", c.forward, 0o600)
	}
	if c.lock != nil {
		_ = note(c.lock, "")
		c.lock.Close()
	}
	if t.Failed() {
		t.Logf("kept: %s", c.dir)
		return
	}
	os.RemoveAll(c.dir)
}

// clear removes what is left once the components have ended: containers with what watches them,
// mounts, networks and control groups.
func (c *Cluster) clear() {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + group)
	groups = append(groups, "/sys/fs/cgroup/"+group)
	for range 50 {
		left := c.watchers()
		for _, g := range groups {
			left = append(left, members(g)...)
		}
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.unmount()
	c.removeNetworks()
	_ = exec.Command("ip", "link", "del", bridge).Run() //nolint:noctx // it returns at once
	for _, g := range groups {
		removeGroup(g)
	}
}

// watchers are the processes of containerd's that watch containers of this cluster.
func (c *Cluster) watchers() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), c.dir+"/c.sock") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// members are the processes in a control group and those below it.
func members(dir string) (pids []int) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil //nolint:nilerr // groups come and go
		}
		b, _ := os.ReadFile(path)
		for word := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

func (c *Cluster) ctr(args ...string) ([]byte, error) {
	return c.limited("ctr", append([]string{"-a", c.path("c.sock"), "-n", "k8s.io"}, args...)...)
}

// tasks are the containers that run.
func (c *Cluster) tasks() string {
	b, err := c.ctr("tasks", "ls", "-q")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// end asks a component to end, and makes it.
func (c *Cluster) end(name string) {
	p := c.procs[name]
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	delete(c.procs, name)
}

// unmount unmounts all below the cluster's directory, the deepest first.
func (c *Cluster) unmount() {
	for range 3 {
		b, _ := os.ReadFile("/proc/mounts")
		var all []string
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], c.dir+"/") {
				all = append(all, f[1])
			}
		}
		if len(all) == 0 {
			return
		}
		slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
		for _, m := range all {
			_ = syscall.Unmount(m, syscall.MNT_DETACH)
		}
	}
}

// removeNetworks removes those of pods that the kubelet did not take down, known by their address.
func (c *Cluster) removeNetworks() {
	all, _ := filepath.Glob("/run/netns/cni-*")
	for _, n := range all {
		name := filepath.Base(n)
		if out, err := c.limited("ip", "-n", name, "-4", "addr"); err == nil && strings.Contains(string(out), " "+strings.TrimSuffix(Gateway, "1")) {
			_, _ = c.limited("ip", "netns", "del", name)
		}
	}
}

// removeGroup removes a control group and those below it.
func removeGroup(dir string) {
	below, _ := os.ReadDir(dir)
	for _, d := range below {
		if d.IsDir() {
			removeGroup(filepath.Join(dir, d.Name()))
		}
	}
	_ = os.Remove(dir)
}
