package measure

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/PID/stat on every Linux that Go runs on.
const tick = 10 * time.Millisecond

const cpuacct = "/sys/fs/cgroup/cpuacct"

// Group counts the CPU of the processes in it, ended ones included, to the nanosecond: a cpuacct
// control group of version 1. A nil Group counts nothing.
type Group struct{ dir string }

// NewGroup makes a group, nil where that is not permitted.
func NewGroup(name string) *Group {
	dir := filepath.Join(cpuacct, name)
	if os.Mkdir(dir, 0o755) != nil {
		return nil
	}
	return &Group{dir: dir}
}

// Sub makes a group inside g: what it counts, g counts too.
func (g *Group) Sub(name string) *Group {
	if g == nil {
		return nil
	}
	rel, err := filepath.Rel(cpuacct, g.dir)
	if err != nil {
		return nil
	}
	return NewGroup(filepath.Join(rel, name))
}

// Enter moves this process, and what it starts from now on, into g.
func (g *Group) Enter() {
	if g != nil {
		_ = os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte("0"), 0)
	}
}

// Usage is the CPU time used so far, and whether it is known.
func (g *Group) Usage() (time.Duration, bool) {
	if g == nil {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join(g.dir, "cpuacct.usage"))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return time.Duration(n), err == nil
}

// Close removes the group; processes still in it go to the root.
func (g *Group) Close() {
	if g == nil {
		return
	}
	b, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	for p := range strings.FieldsSeq(string(b)) {
		_ = os.WriteFile(filepath.Join(cpuacct, "cgroup.procs"), []byte(p), 0)
	}
	_ = os.Remove(g.dir)
}

// Command is a command that enters g before it begins.
func (g *Group) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if g == nil {
		return exec.CommandContext(ctx, name, args...)
	}
	enter := "echo $$ >" + filepath.Join(g.dir, "cgroup.procs") + `; exec "$@"`
	return exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", enter, "sh", name}, args...)...)
}

// CPU is the time a process itself has used, without its children.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command name, in parentheses, may hold blanks.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is short", pid)
	}
	user, err := strconv.ParseInt(f[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * tick, err
}

// Times is the CPU time of each of several processes.
type Times map[int]time.Duration

// CPUs reads the times of pids; those that have ended are left out.
func CPUs(pids []int) Times {
	t := Times{}
	for _, p := range pids {
		if d, err := CPU(p); err == nil {
			t[p] = d
		}
	}
	return t
}

// Since is what the processes in t used after before was taken.
func (t Times) Since(before Times) time.Duration {
	var sum time.Duration
	for p, d := range t {
		sum += d - before[p]
	}
	return sum
}

// Memory is what a process holds: RSS, and PSS where shared pages count in part. In bytes.
func Memory(pid int) (rss, pss int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, 0, err
	}
	for l := range strings.Lines(string(b)) {
		f := strings.Fields(l)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "Rss:":
			rss = n << 10
		case "Pss:":
			pss = n << 10
		}
	}
	return rss, pss, nil
}

// Peak is the most memory that processes had so far, together.
func Peak(pids ...int) (rss int64, err error) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, after, _ := strings.Cut(string(b), "VmHWM:")
		var kb int64
		if _, err := fmt.Sscanf(after, "%d kB", &kb); err != nil {
			return 0, err
		}
		rss += kb << 10
	}
	return rss, nil
}

// Find returns the processes whose arguments match.
func Find(match func(args []string) bool) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil || len(b) == 0 || !match(strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
