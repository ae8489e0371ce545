package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nodePrefix begins the name of a node's groups.
const nodePrefix = "berth-node-"

// hostMemory is what a node's limit leaves for its host, so that a task that may use the whole node
// meets its own limit first.
const hostMemory = 64 << 20

// Groups are the control groups of a node: its host and all of its tasks are in them or below. The
// zero value has none.
//
// In version 2 a group that hands controllers on cannot hold processes, so there the host is in a
// group "host" below the node's, beside those of the tasks.
type Groups struct {
	Memory  string `json:"memory,omitempty"` // directories of version 1 controllers
	CPU     string `json:"cpu,omitempty"`
	Pids    string `json:"pids,omitempty"`
	Unified string `json:"unified,omitempty"` // directory in the version 2 tree
	Limits  bool   `json:"limits,omitempty"`  // the version 2 tree has the controllers for limits
}

// NodeGroups says where this process would make the groups of a node; name is its own on the
// machine.
func NodeGroups(name string) Groups { return machine().groups(name) }

func (h hierarchy) groups(name string) Groups {
	g := Groups{Limits: h.limits}
	for _, d := range []struct {
		base string
		dir  *string
	}{{h.memory, &g.Memory}, {h.cpu, &g.CPU}, {h.pids, &g.Pids}, {h.unified, &g.Unified}} {
		if d.base != "" {
			*d.dir = filepath.Join(d.base, nodePrefix+name)
		}
	}
	return g
}

func (g Groups) dirs() (all []string) {
	for _, d := range []string{g.Memory, g.CPU, g.Pids, g.Unified} {
		if d != "" {
			all = append(all, d)
		}
	}
	return all
}

// Check says why limits would not hold here, nil when they would.
func (g Groups) Check() error {
	if g.Memory == "" && !g.Limits {
		return errNoMemory
	}
	if g.CPU == "" && !g.Limits {
		return errNoCPU
	}
	for _, d := range g.dirs() {
		if err := unix.Access(filepath.Dir(d), unix.W_OK); err != nil {
			return fmt.Errorf("control groups cannot be made below %s: %w", filepath.Dir(d), err)
		}
	}
	return nil
}

// Make makes the groups, with limits of everything in them together; 0 is no limit. Those that are
// there are taken up. It returns the groups that could be made, and an error that says which limits
// do not hold.
func (g Groups) Make(cpus float64, memory int64) (Groups, error) {
	made := Groups{Limits: g.Limits}
	var errs []error
	if g.Unified != "" {
		err := mkdir(g.Unified)
		if err == nil && g.Limits {
			err = set(g.Unified, "cgroup.subtree_control", "+memory +cpu")
		}
		if err == nil {
			err = mkdir(g.host())
		}
		if err == nil {
			made.Unified = g.Unified
		} else if g.Limits {
			errs = append(errs, err)
		}
	}
	v2 := made.Unified != "" && g.Limits
	if g.Memory != "" {
		err := mkdir(g.Memory)
		if err == nil {
			made.Memory = g.Memory
			_ = set(g.Memory, "memory.use_hierarchy", "1") // kernels before 5.11 do not count what is below without it
		}
		errs = append(errs, err)
	}
	if memory > 0 {
		switch n := memory + hostMemory; {
		case made.Memory != "":
			errs = append(errs, limitMemory(made.Memory, n))
		case v2:
			errs = append(errs, limitMemory2(made.Unified, n))
		case len(errs) == 0:
			errs = append(errs, errNoMemory)
		}
	}
	if cpus > 0 && g.CPU != "" {
		err := mkdir(g.CPU)
		if err == nil {
			made.CPU = g.CPU
			_ = set(g.CPU, "cpu.shares", strconv.Itoa(weight(cpus, 1024)))
			err = limitCPU(g.CPU, cpus)
		}
		errs = append(errs, err)
	} else if cpus > 0 {
		switch {
		case v2:
			_ = set(made.Unified, "cpu.weight", strconv.Itoa(weight(cpus, 100)))
			errs = append(errs, limitCPU2(made.Unified, cpus))
		case len(errs) == 0:
			errs = append(errs, errNoCPU)
		}
	}
	g.limitPids(&made)
	return made, errors.Join(errs...)
}

// limitPids leaves the machine half of the processes it can have, where they are counted by group.
// It is not a promise of a size, so that it cannot be done is not an error.
func (g Groups) limitPids(made *Groups) {
	b, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	all, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || all < 2 {
		return
	}
	dir := made.Unified
	if g.Pids != "" && mkdir(g.Pids) == nil {
		made.Pids, dir = g.Pids, g.Pids
	} else if parent := filepath.Dir(dir); made.Unified != "" && counts(parent) && !counts(dir) {
		_ = set(parent, "cgroup.subtree_control", "+pids")
	}
	if made.Pids != "" || made.Unified != "" && counts(dir) {
		_ = set(dir, "pids.max", strconv.Itoa(all/2))
	}
}

// counts says whether the processes in a version 2 group can be counted.
func counts(dir string) bool {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return slices.Contains(strings.Fields(string(b)), "pids")
}

// weight is a node's part of the machine where there are more nodes than it can carry: as many
// times one as it has CPUs, but no more than the machine has, so that a node that is too large
// leaves the server its part.
func weight(cpus float64, one int) int {
	return max(int(min(cpus, float64(runtime.NumCPU()))*float64(one)), 2)
}

func (g Groups) host() string { return filepath.Join(g.Unified, "host") }

// Detach makes a command line that starts a program in the groups and leaves it to whoever takes
// orphans, and the attributes to start that line with. done is to be called once it was.
func (g Groups) Detach(program []string) (argv []string, attr *syscall.SysProcAttr, done func()) {
	attr, done = &syscall.SysProcAttr{Setsid: true}, func() {}
	if g.Unified != "" {
		if fd, err := unix.Open(g.host(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			attr.UseCgroupFD, attr.CgroupFD = true, fd
			done = func() { unix.Close(fd) }
		}
	}
	doors := doorsOf(g.Memory, g.CPU, g.Pids)
	argv = append([]string{"/bin/sh", "-c", stepIn + `"$@" & exit 0`, "berth", strconv.Itoa(len(doors))}, doors...)
	return append(argv, program...), attr, done
}

// Join changes how a program is started so that it is in the same groups as the process pid, as far
// as those are not our own. done is to be called once it was started.
func Join(pid int, path string, args []string, attr *syscall.SysProcAttr) (newPath string, newArgs []string, done func()) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	self, _ := os.ReadFile("/proc/self/cgroup")
	other, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return path, args, func() {}
	}
	ours, _ := ownGroups(string(mounts), string(self), "")
	theirs, _ := ownGroups(string(mounts), string(other), "")
	c := &cgroup{fd: -1}
	if theirs.memory != ours.memory {
		c.memory = theirs.memory
	}
	if theirs.cpu != ours.cpu {
		c.cpu = theirs.cpu
	}
	if theirs.pids != ours.pids {
		c.pids = theirs.pids
	}
	if theirs.unified != ours.unified {
		c.fd, _ = unix.Open(theirs.unified, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	newPath, newArgs = c.enter(path, args, attr)
	return newPath, newArgs, func() {
		if c.fd >= 0 {
			unix.Close(c.fd)
		}
	}
}

// Kill ends every process in the groups, and says whether there was one.
func (g Groups) Kill() (found bool) {
	if g.Unified != "" {
		if b, err := os.ReadFile(filepath.Join(g.Unified, "cgroup.events")); err == nil {
			found = strings.Contains(string(b), "populated 1")
		}
		if set(g.Unified, "cgroup.kill", "1") == nil && g.Memory == "" && g.CPU == "" && g.Pids == "" {
			return found
		}
	}
	for _, top := range g.dirs() {
		for _, d := range below(top) {
			b, _ := os.ReadFile(filepath.Join(d, "cgroup.procs"))
			for f := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != os.Getpid() {
					found = true
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	}
	return found
}

// Remove removes the groups, which must be empty; it gives processes that were killed a moment to
// be gone.
func (g Groups) Remove() error {
	var errs []error
	for _, top := range g.dirs() {
		for wait := time.Millisecond; ; wait *= 2 {
			err := removeGroup(top)
			if err == nil {
				break
			}
			if wait > time.Second {
				errs = append(errs, fmt.Errorf("removing control group %s: %w", top, err))
				break
			}
			time.Sleep(wait)
		}
	}
	return errors.Join(errs...)
}

func removeGroup(top string) error {
	for _, d := range below(top) {
		if err := syscall.Rmdir(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// below lists a group and all groups in it, children first.
func below(top string) (all []string) {
	list, err := os.ReadDir(top)
	if err != nil {
		return nil
	}
	for _, e := range list {
		if e.IsDir() {
			all = append(all, below(filepath.Join(top, e.Name()))...)
		}
	}
	return append(all, top)
}
