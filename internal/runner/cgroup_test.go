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

// Limits of version 2 cannot be tried on a machine whose controllers are version 1, so what is
// written where is checked.
func TestCgroupFiles(t *testing.T) {
	const (
		v1 = `35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory
32 31 0:29 / /cg/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / /cg/unified rw,relatime - cgroup2 cgroup2 rw
`
		v2     = "30 23 0:26 / /cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
		nested = "30 23 0:26 /docker/abc /cg rw,nosuid - cgroup2 cgroup2 rw\n"
	)
	limits := berth.Launch{Memory: 64 << 20, CPUs: 1.5}
	for _, tt := range []struct {
		name, mounts, self string
		have               map[string]string // files that are there
		launch             berth.Launch
		want               map[string]string // files that are written
		args               string
		fd                 bool
		err                string
	}{
		{
			name: "version 1", mounts: v1, self: "4:memory:/box\n1:cpu,cpuacct:/\n0::/\n", launch: limits,
			want: map[string]string{
				"cg/memory/box/berth-x/memory.limit_in_bytes": "67108864", "cg/memory/box/berth-x/memory.memsw.limit_in_bytes": "67108864",
				"cg/cpu,cpuacct/berth-x/cpu.cfs_period_us": "100000", "cg/cpu,cpuacct/berth-x/cpu.cfs_quota_us": "150000",
			},
			args: "/bin/sh -c … berth 2 ROOT/cg/memory/box/berth-x/tasks ROOT/cg/cpu,cpuacct/berth-x/tasks /bin/prog a", fd: true,
		},
		{
			name: "version 1, memory only", mounts: v1, self: "4:memory:/box\n1:cpu,cpuacct:/\n0::/\n", launch: berth.Launch{Memory: 1 << 20},
			want: map[string]string{
				"cg/memory/box/berth-x/memory.limit_in_bytes": "1048576", "cg/memory/box/berth-x/memory.memsw.limit_in_bytes": "1048576",
			},
			args: "/bin/sh -c … berth 1 ROOT/cg/memory/box/berth-x/tasks /bin/prog a", fd: true,
		},
		{
			name: "version 2, beside our own group", mounts: v2, self: "0::/berth.service/host\n", launch: limits,
			have: map[string]string{"cg/berth.service/cgroup.subtree_control": "cpu memory pids", "cg/berth.service/host/cgroup.subtree_control": ""},
			want: map[string]string{
				"cg/berth.service/berth-x/memory.max": "67108864", "cg/berth.service/berth-x/memory.swap.max": "0", "cg/berth.service/berth-x/cpu.max": "150000 100000",
			},
			args: "/bin/prog a", fd: true,
		},
		{
			name: "version 2, in a container", mounts: nested, self: "0::/docker/abc\n", launch: berth.Launch{CPUs: 0.001},
			have: map[string]string{"cg/cgroup.subtree_control": "cpu memory"},
			want: map[string]string{"cg/berth-x/cpu.max": "1000 100000"},
			args: "/bin/prog a", fd: true,
		},
		{
			name: "version 2, nobody asked for it yet", mounts: v2, self: "0::/user.slice/user-0.slice/session\n", launch: berth.Launch{CPUs: 2},
			have: map[string]string{"cg/cgroup.subtree_control": "cpu memory", "cg/user.slice/user-0.slice/session/cgroup.subtree_control": ""},
			want: map[string]string{
				"cg/user.slice/cgroup.subtree_control": "+memory +cpu", "cg/user.slice/user-0.slice/cgroup.subtree_control": "+memory +cpu",
				"cg/user.slice/user-0.slice/berth-x/cpu.max": "200000 100000",
			},
			args: "/bin/prog a", fd: true,
		},
		{
			name: "version 2, not delegated", mounts: v2, self: "0::/user.slice/session\n", launch: limits,
			have: map[string]string{"cg/cgroup.subtree_control": "memory cpu", "cg/user.slice/cgroup.subtree_control/refused": ""},
			args: "/bin/prog a", fd: true, err: "no control group",
		},
		{name: "none at all", launch: limits, args: "/bin/prog a", err: "no control group"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for f, text := range tt.have {
				write(t, filepath.Join(root, f), text)
			}
			for l := range strings.Lines(tt.mounts) {
				for s := range strings.Lines(tt.self) {
					place := s[strings.LastIndexByte(s, ':')+1:]
					_ = os.MkdirAll(filepath.Join(root, strings.Fields(l)[4], strings.TrimSpace(place)), 0o700)
				}
			}
			before := files(t, root)
			args, fd, err := runner.MakeCgroup(tt.mounts, tt.self, root, &tt.launch, []string{"/bin/prog", "a"})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			if len(args) > 3 {
				args[2] = "…"
			}
			if got := strings.ReplaceAll(strings.Join(args, " "), root, "ROOT"); got != tt.args || fd != tt.fd {
				t.Errorf("started as %q (%v), want %q (%v)", got, fd, tt.args, tt.fd)
			}
			got := files(t, root)
			for f := range before {
				delete(got, f)
			}
			if len(got)+len(tt.want) > 0 && !cmp.Equal(tt.want, got) {
				t.Error(cmp.Diff(tt.want, got))
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files reads every file below dir.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, _ := os.ReadFile(p)
			rel, _ := filepath.Rel(dir, p)
			out[rel] = string(b)
		}
		return nil
	})
	return out
}
