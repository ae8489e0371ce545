package runner

import (
	"syscall"

	"github.com/berthml/berth"
)

// MakeCgroup makes the groups of a launch below root, on a machine with these mounts and this place
// in them, and tells how a program would be started there.
func MakeCgroup(mounts, self, root string, l *berth.Launch, program []string) (args []string, useFD bool, err error) {
	c, err := findHierarchy(mounts, self, root).make(l, "berth-x")
	if c == nil {
		return program, false, err
	}
	var attr syscall.SysProcAttr
	_, args = c.enter(program[0], program, &attr)
	return args, attr.UseCgroupFD, err
}

// MakeGroups makes the groups of a node below root, on a machine with these mounts and this place
// in them, and tells how its host would be started there.
func MakeGroups(mounts, self, root string, cpus float64, memory int64, program []string) (args []string, useFD bool, err error) {
	g, err := findHierarchy(mounts, self, root).groups("x").Make(cpus, memory)
	args, attr, done := g.Detach(program)
	defer done()
	return args, attr.UseCgroupFD, err
}

// Marked lists the living processes that carry the mark of a task's directory.
func Marked(dir string) (pids []int) {
	for _, s := range processes() {
		if alive(s) && markOf(s.pid) == dir {
			pids = append(pids, s.pid)
		}
	}
	return pids
}

// MountTrouble says why this process can mount nothing; empty when it can.
func MountTrouble() string {
	r, err := mountAll("", nil, func() error { return nil })
	if err != nil {
		return err.Error()
	}
	r.close()
	return ""
}

// RefuseMounts makes the runner believe that it can mount nothing, until the function returned is
// called.
func RefuseMounts() (restore func()) {
	why := "the test says so"
	old := mountsRefused.Swap(&why)
	return func() { mountsRefused.Store(old) }
}
