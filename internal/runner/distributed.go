package runner

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/runner/group"
)

// grouped says whether the task runs several processes, or one that has peers on other nodes.
func (t *task) grouped() bool { return t.l.Group != nil }

// program is what carries out the command on this machine: for a task of a distributed job the
// launcher of its processes. plain says that the shell may be tried when the program cannot be
// executed.
func (t *task) program(s *Spec) (path string, args []string, plain bool, err error) {
	if !t.grouped() {
		path, args = argv(s.Command, s.Env, s.Dir)
		return path, args, path != shell(), nil
	}
	if path, err = ownProgram(); err != nil {
		return "", nil, false, err
	}
	return path, append([]string{path}, group.Words(t.o.Dir)...), false, t.leaveSpec(s, false)
}

// leaveSpec tells the launcher what to do.
func (t *task) leaveSpec(s *Spec, boxed bool) error {
	return (&group.Spec{Group: *t.l.Group, Command: s.Command, Dir: s.Dir, Told: boxed}).Write(t.o.Dir)
}

// boxGroup changes a container so that it runs the launcher: this program is static, and needs
// nothing of the image.
func (t *task) boxGroup(c *envs.ContainerSpec, s *Spec) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if !static(program) {
		return berth.Errorf(berth.Unsupported, "a distributed job cannot run in a container here: %s, which starts its processes there, is not a static "+
			"Linux program; use a released build, or an environment without an image", program)
	}
	const inside = "/.berth"
	c.Mounts = append(c.Mounts, envs.Mount{Host: program, Path: inside, ReadOnly: true})
	for _, p := range t.l.Group.Processes[1:] {
		if p.LogFile == "" {
			continue // it is in the task's directory
		}
		fd, err := OpenLog(p.LogFile) // what is not there cannot be mounted
		if err != nil {
			return err
		}
		closeLog(fd)
		c.Mounts = append(c.Mounts, envs.Mount{Host: p.LogFile, Path: p.LogFile})
	}
	c.Cmd = append([]string{inside}, group.Words(t.o.Dir)...)
	return t.leaveSpec(s, true)
}

// static says whether a program runs in any image.
func static(program string) bool {
	f, err := elf.Open(program)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// groupExit adds to the end of a launcher what it has left about its processes. It stands in for an
// end that nobody knows.
func (t *task) groupExit(exit *berth.Exit, known bool) (*berth.Exit, bool) {
	said, err := group.Result(t.o.Dir)
	switch {
	case err != nil:
		t.o.Log.Warn("what the launcher left is not understood", "task", t.l.Task, "err", err)
		return exit, known
	case said == nil:
		if known && exit.Code != 0 {
			exit.Reason = fmt.Sprintf("node %d: the launcher of its processes was ended before them: %s", t.l.Group.Node, exit.Reason)
		}
		return exit, known
	}
	if known {
		said.OOM = exit.OOM
	}
	return said, true
}

// output is one log of a task: its name for the server, and the file.
type output struct {
	name, path string
	size       int64 // how much of it the server has
}

// logs are the task's logs: its own first, then those of its other processes.
func (t *task) logs() []output {
	name := t.l.Log
	if name == "" {
		name = logName
	}
	list := []output{{name: name, path: t.logPath()}}
	if t.grouped() {
		for _, p := range t.l.Group.Processes[1:] {
			list = append(list, output{name: p.Log, path: group.Log(t.o.Dir, p)})
		}
	}
	return list
}
