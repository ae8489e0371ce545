//go:build linux

package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// TestNodeGroups checks what is written where for a node, and for a task that the node's host,
// which is in those groups, starts then.
func TestNodeGroups(t *testing.T) {
	const (
		v1 = `35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory
32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /cg/unified rw,relatime - cgroup2 cgroup2 rw
`
		v2     = "30 23 0:26 / /cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
		mem    = "1073741824"
		memAll = "1140850688" // and what the host needs
	)
	for _, tt := range []struct {
		name, mounts, self string
		have               map[string]string // files that are there
		want               map[string]string // files that are written for the node
		args               string
		fd                 bool
		err                string
		then               string            // /proc/self/cgroup of the host
		task               berth.Launch      // what it starts
		wantTask           map[string]string // files that are written for the task
		taskArgs           string
	}{
		{
			name: "version 1", mounts: v1, self: "4:memory:/box\n1:cpu:/\n0::/\n",
			want: map[string]string{
				"cg/memory/box/berth-node-x/memory.use_hierarchy":        "1",
				"cg/memory/box/berth-node-x/memory.limit_in_bytes":       memAll,
				"cg/memory/box/berth-node-x/memory.memsw.limit_in_bytes": memAll,
				"cg/cpu/berth-node-x/cpu.cfs_period_us":                  "100000",
				"cg/cpu/berth-node-x/cpu.cfs_quota_us":                   "50000",
				"cg/cpu/berth-node-x/cpu.shares":                         "512",
			},
			args: "/bin/sh -c … berth 2 ROOT/cg/memory/box/berth-node-x/tasks ROOT/cg/cpu/berth-node-x/tasks /bin/prog a", fd: true,
			then: "4:memory:/box/berth-node-x\n1:cpu:/berth-node-x\n0::/berth-node-x/host\n", task: berth.Launch{Memory: 1 << 30},
			wantTask: map[string]string{
				"cg/memory/box/berth-node-x/berth-x/memory.limit_in_bytes":       mem,
				"cg/memory/box/berth-node-x/berth-x/memory.memsw.limit_in_bytes": mem,
			},
			taskArgs: "/bin/sh -c … berth 1 ROOT/cg/memory/box/berth-node-x/berth-x/tasks /bin/prog a",
		},
		{
			name: "version 1, a task without limits", mounts: v1, self: "4:memory:/\n1:cpu:/\n0::/\n",
			want: map[string]string{
				"cg/memory/berth-node-x/memory.use_hierarchy":        "1",
				"cg/memory/berth-node-x/memory.limit_in_bytes":       memAll,
				"cg/memory/berth-node-x/memory.memsw.limit_in_bytes": memAll,
				"cg/cpu/berth-node-x/cpu.cfs_period_us":              "100000",
				"cg/cpu/berth-node-x/cpu.cfs_quota_us":               "50000",
				"cg/cpu/berth-node-x/cpu.shares":                     "512",
			},
			args: "/bin/sh -c … berth 2 ROOT/cg/memory/berth-node-x/tasks ROOT/cg/cpu/berth-node-x/tasks /bin/prog a", fd: true,
			then:     "4:memory:/berth-node-x\n1:cpu:/berth-node-x\n0::/berth-node-x/host\n",
			taskArgs: "/bin/sh -c … berth 1 ROOT/cg/memory/berth-node-x/berth-x/tasks /bin/prog a",
		},
		{
			name: "version 2, beside our own group", mounts: v2, self: "0::/berth.service/main\n",
			have: map[string]string{
				"cg/berth.service/cgroup.subtree_control": "cpu memory pids", "cg/berth.service/main/cgroup.subtree_control": "",
				"cg/berth.service/berth-node-x/cgroup.subtree_control": "", "cg/berth.service/berth-node-x/host/cgroup.subtree_control": "",
			},
			want: map[string]string{
				"cg/berth.service/berth-node-x/memory.max": memAll, "cg/berth.service/berth-node-x/memory.swap.max": "0",
				"cg/berth.service/berth-node-x/cpu.max":                "50000 100000",
				"cg/berth.service/berth-node-x/cpu.weight":             "50",
				"cg/berth.service/berth-node-x/cgroup.subtree_control": "+memory +cpu",
			},
			args: "/bin/sh -c … berth 0 /bin/prog a", fd: true,
			then: "0::/berth.service/berth-node-x/host\n", task: berth.Launch{Memory: 1 << 30, CPUs: 1},
			wantTask: map[string]string{
				"cg/berth.service/berth-node-x/berth-x/memory.max": mem, "cg/berth.service/berth-node-x/berth-x/memory.swap.max": "0",
				"cg/berth.service/berth-node-x/berth-x/cpu.max": "100000 100000",
			},
			taskArgs: "/bin/prog a",
		},
		{
			name: "version 2, not delegated", mounts: v2, self: "0::/user.slice/session\n",
			have: map[string]string{"cg/cgroup.subtree_control": "memory cpu", "cg/user.slice/cgroup.subtree_control/refused": ""},
			args: "/bin/sh -c … berth 0 /bin/prog a", fd: true, err: "no control group",
		},
		{
			name: "version 2, our own group delegated to us", mounts: v2, self: "0::/system.slice/berth.service\n",
			have: map[string]string{
				"cg/cgroup.subtree_control": "memory cpu", "cg/system.slice/cgroup.subtree_control": "memory cpu", "cg/system.slice/cgroup.procs/refused": "",
				"cg/system.slice/berth.service/cgroup.controllers": "cpu memory", "cg/system.slice/berth.service/cgroup.procs": "17\n",
				"cg/system.slice/berth.service/cgroup.subtree_control":              "",
				"cg/system.slice/berth.service/berth-main/cgroup.procs":             "",
				"cg/system.slice/berth.service/berth-node-x/cgroup.subtree_control": "", "cg/system.slice/berth.service/berth-node-x/host/cgroup.subtree_control": "",
			},
			want: map[string]string{
				"cg/system.slice/berth.service/berth-main/cgroup.procs": "17", "cg/system.slice/berth.service/cgroup.subtree_control": "+memory +cpu",
				"cg/system.slice/berth.service/berth-node-x/memory.max": memAll, "cg/system.slice/berth.service/berth-node-x/memory.swap.max": "0",
				"cg/system.slice/berth.service/berth-node-x/cpu.max":                "50000 100000",
				"cg/system.slice/berth.service/berth-node-x/cpu.weight":             "50",
				"cg/system.slice/berth.service/berth-node-x/cgroup.subtree_control": "+memory +cpu",
			},
			args: "/bin/sh -c … berth 0 /bin/prog a", fd: true,
		},
		{
			name: "version 2, nothing delegated to us", mounts: v2, self: "0::/user.slice/session\n",
			have: map[string]string{
				"cg/cgroup.subtree_control": "memory cpu", "cg/user.slice/cgroup.subtree_control": "memory cpu", "cg/user.slice/cgroup.procs/refused": "",
				"cg/user.slice/session/cgroup.controllers": "memory cpu", "cg/user.slice/session/cgroup.procs/refused": "",
			},
			args: "/bin/sh -c … berth 0 /bin/prog a", err: "no control group",
		},
		{name: "none at all", args: "/bin/sh -c … berth 0 /bin/prog a", err: "no control group"},
		{
			name: "version 1, nothing to be made", mounts: v1, self: "4:memory:/gone\n1:cpu:/gone\n0::/gone\n",
			args: "/bin/sh -c … berth 0 /bin/prog a", err: "no such file",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for f, text := range tt.have {
				write(t, filepath.Join(root, f), text)
			}
			for l := range strings.Lines(tt.mounts) {
				for s := range strings.Lines(tt.self) {
					place := strings.TrimSpace(s[strings.LastIndexByte(s, ':')+1:])
					if place != "/gone" {
						_ = os.MkdirAll(filepath.Join(root, strings.Fields(l)[4], place), 0o700)
					}
				}
			}
			before := files(t, root)
			program := []string{"/bin/prog", "a"}
			args, fd, err := runner.MakeGroups(tt.mounts, tt.self, root, 0.5, 1<<30, program)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			checkStart(t, root, args, tt.args)
			if fd != tt.fd {
				t.Errorf("started by descriptor: %v, want %v", fd, tt.fd)
			}
			checkFiles(t, root, before, tt.want)
			if tt.then == "" {
				return
			}
			for f, text := range files(t, root) {
				if text == "+memory +cpu" { // as the kernel does
					write(t, filepath.Join(root, f), "cpu memory\n")
				}
			}
			before = files(t, root)
			args, _, err = runner.MakeCgroup(tt.mounts, tt.then, root, &tt.task, program)
			if err != nil {
				t.Fatal(err)
			}
			checkStart(t, root, args, tt.taskArgs)
			checkFiles(t, root, before, tt.wantTask)
		})
	}
}

func checkStart(t *testing.T, root string, args []string, want string) {
	t.Helper()
	if len(args) > 3 {
		args[2] = "…"
	}
	if got := strings.ReplaceAll(strings.Join(args, " "), root, "ROOT"); got != want {
		t.Errorf("started as %q, want %q", got, want)
	}
}

// checkFiles compares the files that are new or have changed.
func checkFiles(t *testing.T, root string, before, want map[string]string) {
	t.Helper()
	got := files(t, root)
	for f, text := range before {
		if got[f] == text {
			delete(got, f)
		}
	}
	if len(got)+len(want) > 0 && !cmp.Equal(want, got) {
		t.Error(cmp.Diff(want, got))
	}
}
