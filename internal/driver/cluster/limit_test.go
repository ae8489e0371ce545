//go:build linux

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/host"
)

// enforced skips a test where control groups cannot be made.
func enforced(t *testing.T) {
	t.Helper()
	if err := runner.NodeGroups("x").Check(); err != nil {
		t.Skip(err)
	}
}

// group reads a file of the group of the process that runs it, in version 1 or 2, and of the group
// above it.
const group = `
g() {
	v1=$(grep -E "^[0-9]+:([a-z]+,)*$1(,[a-z]+)*:" /proc/self/cgroup | cut -d: -f3)
	if [ -d /sys/fs/cgroup/$1 ]; then cat /sys/fs/cgroup/$1$v1/$2/$3; else cat /sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -d: -f3)/$2/$4; fi
}
`

func TestLimits(t *testing.T) {
	enforced(t)
	d, _ := open(t)
	add(t, d, driver.NodeSpec{Name: "small", CPUs: 0.5, Memory: 512 << 20, Slots: 1})
	add(t, d, driver.NodeSpec{Name: "large", CPUs: 4000, Memory: 1 << 50, Slots: 1}) // more than any machine has is no limit, and no error
	exit, out := run(t, d, berth.Launch{
		Task: "a.1", Node: "small",
		Command: group + "g memory . memory.limit_in_bytes memory.max; g memory .. memory.limit_in_bytes memory.max; g cpu .. cpu.cfs_quota_us cpu.max",
	})
	if f := strings.Fields(out); !exit.OK() || len(f) < 3 || f[0] != fmt.Sprint(512<<20) || f[1] != fmt.Sprint(576<<20) || f[2] != "50000" {
		t.Errorf("exit %+v, limits %q", exit, out)
	}
	if exit, _ := run(t, d, berth.Launch{Task: "b.1", Node: "large", Command: "true"}); !exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	info, err := d.Probe(limited(t))
	if err != nil || len(info.Warnings) != 0 {
		t.Errorf("%v, %q", err, info.Warnings)
	}
	for _, n := range info.Nodes {
		if n.Name == "small" && (n.CPUs != 0.5 || n.Memory != 512<<20) {
			t.Errorf("%+v", n)
		}
	}
}

// TestOOM lets tasks use more memory than their node has: they are told so, and the node goes on.
func TestOOM(t *testing.T) {
	enforced(t)
	const hungry = `awk 'BEGIN { for (s = "x"; ; s = s s) ; }'`
	d, dir := open(t)
	for _, slots := range []int{1, 4} {
		node := fmt.Sprint("slots-", slots)
		add(t, d, driver.NodeSpec{Name: node, CPUs: 2, Memory: 128 << 20, Slots: slots})
		c := host.NewClient(filepath.Join(dir, node))
		defer c.Close()
		before, err := c.Info(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		exit, out := run(t, d, berth.Launch{Task: berth.TaskID(node + ".a"), Node: node, Command: hungry})
		if exit.OK() || !exit.OOM || !strings.Contains(exit.Reason, "memory") {
			t.Errorf("%s: exit %+v, output %q", node, exit, out)
		}
		if slots == 1 && !strings.Contains(exit.Reason, "128 MiB") {
			t.Errorf("%s: %s", node, exit.Reason)
		}
		if exit, _ := run(t, d, berth.Launch{Task: berth.TaskID(node + ".b"), Node: node, Command: "true"}); !exit.OK() || exit.OOM {
			t.Errorf("%s: exit %+v afterwards", node, exit)
		}
		if after, err := c.Info(limited(t)); err != nil || after.PID != before.PID {
			t.Errorf("%s: the host did not live: %+v, %v", node, after, err)
		}
	}
}

// TestExecLimits looks at where a command beside a task runs: in the task's groups, with its
// limits.
func TestExecLimits(t *testing.T) {
	enforced(t)
	ctx := limited(t)
	d, _ := open(t)
	add(t, d, driver.NodeSpec{Name: "n", CPUs: 1, Memory: 256 << 20, Slots: 1})
	l := berth.Launch{Task: "a.1", Node: "n", Command: "cat /proc/self/cgroup; sleep 600", LogFile: filepath.Join(t.TempDir(), "log")}
	h, err := d.Start(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	want := ""
	wait(t, "the task", func() bool {
		b, _ := os.ReadFile(l.LogFile)
		want = string(b)
		all, err := d.Observe(ctx)
		return err == nil && len(all) == 1 && all[0].State == berth.TaskRunning && strings.Contains(want, "0::")
	})
	var out strings.Builder
	if code, err := d.Exec(ctx, h, driver.Command{Args: []string{"cat", "/proc/self/cgroup"}, Stdout: &out}); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	if out.String() != want || !strings.Contains(want, "berth-node-") {
		t.Errorf("it runs in %s, the task in %s", out.String(), want)
	}
}
