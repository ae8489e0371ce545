package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
)

// cgroup is the control groups of one task: they limit it, count what the kernel ended for want of
// memory, and find its processes wherever they went. A nil cgroup does nothing.
type cgroup struct {
	memory, cpu string // directories of version 1 controllers; empty when not used
	pids        string // of a node, for what joins it
	unified     string // directory in the version 2 tree; empty when there is none
	fd          int    // of unified, for entering; -1 when closed
}

// hierarchy is where this process may make groups: for each controller the directory below which to
// do so.
type hierarchy struct {
	memory, cpu string // version 1
	pids        string // version 1
	unified     string
	limits      bool // the version 2 tree has the controllers for limits
	node        bool // this process is in a node's groups, see Groups: then every task has a group, to learn what the kernel ended in it
}

var machine = sync.OnceValue(func() hierarchy {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	self, _ := os.ReadFile("/proc/self/cgroup")
	return findHierarchy(string(mounts), string(self), "")
})

// findHierarchy reads /proc/self/mountinfo and /proc/self/cgroup. root is put before every path,
// for tests.
func findHierarchy(mounts, self, root string) hierarchy {
	h, mount := ownGroups(mounts, self, root)
	if h.unified != "" && h.memory == "" && h.cpu == "" {
		h.unified, h.limits = limitable(h.unified, mount)
	}
	if h.unified != "" && !enterable(h.unified) {
		h.unified, h.limits = "", false
	}
	for _, d := range []string{h.memory, h.unified} {
		h.node = h.node || strings.HasPrefix(filepath.Base(d), nodePrefix)
	}
	return h
}

// ownGroups are the groups of the process whose /proc/PID/cgroup is own, and where the version 2
// tree is mounted.
func ownGroups(mounts, own, root string) (h hierarchy, mount string) {
	groups := map[string]string{} // by controller, or "" for version 2
	for l := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				groups[c] = f[2]
			}
		}
	}
	for l := range strings.Lines(mounts) {
		left, right, ok := strings.Cut(l, " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		below := func(c string) string {
			return filepath.Join(root, f[4], strings.TrimPrefix(groups[c], strings.TrimSuffix(f[3], "/")))
		}
		switch g[0] {
		case "cgroup":
			for o := range strings.SplitSeq(g[2], ",") {
				switch o {
				case "memory":
					h.memory = below(o)
				case "cpu":
					h.cpu = below(o)
				case "pids":
					h.pids = below(o)
				}
			}
		case "cgroup2":
			h.unified, mount = below(""), filepath.Join(root, f[4])
		}
	}
	return h, mount
}

// limitable finds the directory below which groups with limits can be made. A group with processes
// in it cannot hand controllers on, so it is the parent of our own, or our own when that is the
// root of all. Where nobody has asked for the controllers yet, we do. Where only our own group was
// delegated to us, we and whatever else is in it move to a group below it.
func limitable(own, mount string) (dir string, ok bool) {
	parent := filepath.Dir(own)
	rel, err := filepath.Rel(mount, parent)
	top := own == mount || err != nil || strings.HasPrefix(rel, "..")
	switch {
	case handsOn(own):
		return own, true
	case top:
		return own, hand(own)
	case !enterable(parent):
		return own, stepAside(own)
	case handsOn(parent):
		return parent, true
	}
	dir = mount
	for part := range strings.SplitSeq("./"+rel, "/") {
		if dir = filepath.Join(dir, part); !hand(dir) {
			return own, false
		}
	}
	return dir, true
}

// enterable says whether processes may be moved between the groups below dir: that takes the right
// to write its cgroup.procs.
func enterable(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	_ = f.Close() // nothing was written
	return true
}

// asideGroup is where the processes of a delegated group go, so that the group can hand its
// controllers on.
const asideGroup = "berth-main"

// stepAside moves the processes of a group that was delegated to us into one below it, and hands
// the controllers on. What forks meanwhile is moved in the next round.
func stepAside(own string) bool {
	b, _ := os.ReadFile(filepath.Join(own, "cgroup.controllers"))
	f := strings.Fields(string(b))
	aside := filepath.Join(own, asideGroup)
	if !slices.Contains(f, "memory") || !slices.Contains(f, "cpu") || !enterable(own) || mkdir(aside) != nil {
		return false
	}
	for range 10 {
		pids, _ := os.ReadFile(filepath.Join(own, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(pids)) {
			_ = set(aside, "cgroup.procs", pid) // it may have ended, or be somebody else's: then the next step fails
		}
		if hand(own) {
			return true
		}
	}
	_ = syscall.Rmdir(aside) // nobody moved, or somebody stays
	return false
}

// handsOn says whether groups below dir have the controllers for limits, and hand makes it so.
func handsOn(dir string) bool {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	f := strings.Fields(string(b))
	return slices.Contains(f, "memory") && slices.Contains(f, "cpu")
}

func hand(dir string) bool {
	return handsOn(dir) || set(dir, "cgroup.subtree_control", "+memory +cpu") == nil
}

// newCgroup makes the groups, called name, of a task that has limits, its own or its node's, nil
// for one that has none. An error says which limit will not hold; the group it comes with may be
// nil.
func newCgroup(l *berth.Launch, name string) (*cgroup, error) {
	h := machine()
	if l.CPUs <= 0 && l.Memory <= 0 && !h.node {
		return nil, nil
	}
	return h.make(l, name)
}

func (h hierarchy) make(l *berth.Launch, name string) (*cgroup, error) {
	c := &cgroup{fd: -1}
	var errs []error
	if h.unified != "" {
		dir := filepath.Join(h.unified, name)
		if err := mkdir(dir); err == nil {
			c.unified = dir
			c.fd, _ = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
	}
	v2 := c.unified != "" && h.limits
	if h.memory != "" && (l.Memory > 0 || h.node) {
		dir := filepath.Join(h.memory, name)
		err := mkdir(dir)
		if err == nil { // one that could not be made cannot be entered either
			c.memory = dir
		}
		errs = append(errs, err)
	}
	if l.Memory > 0 {
		switch {
		case c.memory != "":
			errs = append(errs, limitMemory(c.memory, l.Memory))
		case h.memory != "": // why not is said above
		case v2:
			errs = append(errs, limitMemory2(c.unified, l.Memory))
		default:
			errs = append(errs, errNoMemory)
		}
	}
	if l.CPUs > 0 {
		switch {
		case h.cpu != "":
			dir := filepath.Join(h.cpu, name)
			err := mkdir(dir)
			if err == nil {
				c.cpu, err = dir, limitCPU(dir, l.CPUs)
			}
			errs = append(errs, err)
		case v2:
			errs = append(errs, limitCPU2(c.unified, l.CPUs))
		default:
			errs = append(errs, errNoCPU)
		}
	}
	return c, errors.Join(errs...)
}

var (
	errNoMemory = errors.New("memory: this machine has no control group to limit it by")
	errNoCPU    = errors.New("CPU: this machine has no control group to limit it by")
)

func limitMemory(dir string, bytes int64) error {
	n := strconv.FormatInt(bytes, 10)
	// The limit without swap may never be above the one with it, so raising them takes the other
	// order.
	_ = set(dir, "memory.memsw.limit_in_bytes", n) // not there without accounting of swap
	err := set(dir, "memory.limit_in_bytes", n)
	_ = set(dir, "memory.memsw.limit_in_bytes", n)
	return err
}

func limitMemory2(dir string, bytes int64) error {
	_ = set(dir, "memory.swap.max", "0")
	return set(dir, "memory.max", strconv.FormatInt(bytes, 10))
}

// period is what a quota of processor time is part of, in microseconds.
const period = 100000

func quota(cpus float64) string { return strconv.FormatInt(max(int64(cpus*period), 1000), 10) }

func limitCPU(dir string, cpus float64) error {
	if err := set(dir, "cpu.cfs_period_us", strconv.Itoa(period)); err != nil {
		return err
	}
	err := set(dir, "cpu.cfs_quota_us", quota(cpus))
	if errors.Is(err, syscall.EINVAL) {
		return nil // a group above has less than this, and that holds
	}
	return err
}

func limitCPU2(dir string, cpus float64) error {
	return set(dir, "cpu.max", quota(cpus)+" "+strconv.Itoa(period))
}

// openCgroup finds the groups an earlier runner made.
func openCgroup(l *berth.Launch, name string) *cgroup {
	h := machine()
	if l.CPUs <= 0 && l.Memory <= 0 && !h.node {
		return nil
	}
	c := &cgroup{fd: -1}
	for _, d := range []struct {
		base string
		dir  *string
	}{{h.memory, &c.memory}, {h.cpu, &c.cpu}, {h.unified, &c.unified}} {
		if d.base == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(d.base, name)); err == nil {
			*d.dir = filepath.Join(d.base, name)
		}
	}
	return c
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func set(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// enter changes how a program is started so that it is in the groups from its first instruction.
// Version 2 has a flag for it; into groups of version 1 a shell steps first, which then becomes the
// program.
func (c *cgroup) enter(path string, args []string, attr *syscall.SysProcAttr) (string, []string) {
	if c == nil {
		return path, args
	}
	if c.fd >= 0 {
		attr.UseCgroupFD, attr.CgroupFD = true, c.fd
	}
	doors := doorsOf(c.memory, c.cpu, c.pids)
	if len(doors) == 0 {
		return path, args
	}
	shim := append([]string{"/bin/sh", "-c", stepIn + `exec "$@"`, "berth", strconv.Itoa(len(doors))}, doors...)
	return "/bin/sh", append(append(shim, path), args[1:]...)
}

// stepIn is the part of a shell's text that enters groups of version 1: their number and files come
// first among the arguments. A process of one thread that moves itself by "tasks" is spared a lock
// of the whole machine.
const stepIn = `n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1" || exit 125; shift; n=$((n-1)); done; `

// doorsOf are the files by which groups of version 1 are entered.
func doorsOf(dirs ...string) (files []string) {
	for _, d := range dirs {
		if d != "" {
			files = append(files, filepath.Join(d, "tasks"))
		}
	}
	return files
}

// kill ends every process in the groups.
func (c *cgroup) kill() {
	if c == nil {
		return
	}
	if c.unified != "" && set(c.unified, "cgroup.kill", "1") == nil {
		return
	}
	for _, d := range []string{c.memory, c.cpu, c.unified} {
		b, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if d == "" || err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// oomKilled says whether the kernel ended a process of the task for want of memory.
func (c *cgroup) oomKilled() bool {
	if c == nil {
		return false
	}
	var file string
	switch {
	case c.memory != "":
		file = filepath.Join(c.memory, "memory.oom_control")
	case c.unified != "":
		file = filepath.Join(c.unified, "memory.events")
	}
	b, _ := os.ReadFile(file)
	for l := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(l, "oom_kill "); ok {
			return strings.TrimSpace(n) != "0"
		}
	}
	return false
}

// release lets go of the groups, and of what is in them.
func (c *cgroup) release() {
	if c != nil && c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}

// remove ends what is left in the groups and removes them. Processes need a moment to be gone.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	c.release()
	c.kill()
	for _, d := range []string{c.memory, c.cpu, c.unified} {
		if d == "" {
			continue
		}
		for wait := time.Millisecond; wait < time.Second; wait *= 2 {
			if err := syscall.Rmdir(d); err != syscall.EBUSY {
				break
			}
			time.Sleep(wait)
		}
	}
}
