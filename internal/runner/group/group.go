// Package group starts the processes of one node of a distributed job and sees them to their end.
//
// It is a program of its own, the hidden command _group, because the processes of a task must
// outlive the runner that asked for them: to the runner the launcher is the task's one process.
// What it starts is in a file in the task's directory, which it removes once read; how it went is
// in another, which it leaves.
//
// Processes that know their peers by variables (PyTorch, TensorFlow, or none of these) are its
// children. Those of MPI are mpirun's: the launcher of the first node, the head, starts mpirun, and
// the launchers of the other nodes, the arms, start mpirun's daemons where it would have used ssh.
// Each rank runs below a small parent, again this program, so that its output, its end and the
// order of ends are known.
package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthml/berth"
)

// Spec is what a launcher does.
type Spec struct {
	Group   berth.Group `json:"group"`
	Command string      `json:"command"` // for a shell, the same for each process
	Dir     string      `json:"dir"`     // where the processes run
	// Told says that the processes are asked to end together with the launcher, which has not to
	// ask them then.
	Told bool `json:"told,omitempty"`
	// Grace is what the others are given to end when one process has failed; 0 is ten seconds.
	Grace time.Duration `json:"grace,omitempty"`
}

func (s *Spec) grace() time.Duration {
	if s.Grace > 0 {
		return s.Grace
	}
	return 10 * time.Second
}

// TaskDir is the variable with the task's directory, which every process of it has.
const TaskDir = "BERTH_TASK_DIR"

// Words are what a launcher is started with after the program's own path: dir is the task's
// directory, where Write left the file.
func Words(dir string) []string { return []string{"_group", dir} }

func specPath(dir string) string { return filepath.Join(dir, "group.json") }

func resultPath(dir string) string { return filepath.Join(dir, "group-exit.json") }

// Write leaves what the launcher of a task's directory is to do.
func (s *Spec) Write(dir string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(specPath(dir), b, 0o600)
}

// read takes what Write left: it holds a secret that the processes have no need of.
func read(dir string) (*Spec, error) {
	b, err := os.ReadFile(specPath(dir))
	if err != nil {
		return nil, err
	}
	if err := os.Remove(specPath(dir)); err != nil {
		return nil, err
	}
	s := new(Spec)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, err
	}
	if len(s.Group.Nodes) == 0 || len(s.Group.Processes) == 0 || s.Group.Node >= len(s.Group.Nodes) {
		return nil, fmt.Errorf("node %d of %d has %d processes", s.Group.Node, len(s.Group.Nodes), len(s.Group.Processes))
	}
	return s, nil
}

// Result is how the processes of a task's directory ended, nil when the launcher did not come to
// say.
func Result(dir string) (*berth.Exit, error) {
	// The processes could write there too.
	f, err := os.OpenFile(resultPath(dir), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", resultPath(dir))
	}
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	e := new(berth.Exit)
	return e, json.Unmarshal(b, e)
}

// leave is the launcher's last word.
func leave(dir string, e berth.Exit) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	next := resultPath(dir) + ".new"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return err
	}
	return os.Rename(next, resultPath(dir))
}

// Log is the file on the node that takes a process's output. The first process of a node writes
// where its task does.
func Log(dir string, p berth.Process) string {
	if p.LogFile != "" {
		return p.LogFile
	}
	return filepath.Join(dir, path.Base(p.Log))
}

// Main is the hidden command: args are what follows it on the command line.
func Main(args []string) int {
	ctx := context.Background() // its processes are ended in other ways
	switch {
	case len(args) == 1 && args[0] == "rank":
		return rank(ctx)
	case len(args) > 2 && args[0] == "rsh":
		return agent(ctx, args[1:])
	case len(args) == 1:
		return launch(ctx, args[0])
	}
	fmt.Fprintln(os.Stderr, "berth _group: this command is internal")
	return 2
}

// launch is the launcher's process.
func launch(ctx context.Context, dir string) int {
	first := false // it is the first process that failed, and this is its log
	e := func() (e berth.Exit) {
		s, err := read(dir)
		if err == nil {
			err = os.Chdir(dir) // sockets are reached by short names from here
		}
		if err != nil {
			return cannot("the launcher of its processes cannot begin: %v", err)
		}
		defer func() { first = e.Cause == "" && e.Process == s.Group.Processes[0].Rank }()
		if strings.EqualFold(s.Group.Type, "mpi") {
			if s.Group.Node > 0 {
				return runArm(ctx, s, dir)
			}
			return runHead(ctx, s, dir)
		}
		return runLocal(ctx, s, dir)
	}()
	if e.Reason != "" && !first {
		fmt.Fprintln(os.Stderr, "berth:", e.Reason)
	}
	if err := leave(dir, e); err != nil {
		fmt.Fprintln(os.Stderr, "berth: how the processes ended could not be kept:", err)
	}
	if e.Code < 0 {
		return 1
	}
	return e.Code
}

// cannot is the end of a launcher that could not do its work.
func cannot(format string, args ...any) berth.Exit {
	return berth.Exit{Code: 1, Cause: "command", Reason: fmt.Sprintf(format, args...)}
}

// ended is how a process ended: its exit code, or the signal that ended it.
type ended struct {
	Rank   int  `json:"rank"`
	Code   int  `json:"code"`
	Signal int  `json:"signal,omitempty"`
	Told   bool `json:"told,omitempty"` // somebody else had asked it to end
	// Line is what its log says of a failure.
	Line string `json:"line,omitempty"`
}

func (e ended) ok() bool { return e.Code == 0 }

// exit is the end of a process as the end of its task.
func (s *Spec) exit(e ended) berth.Exit {
	x := berth.Exit{Code: e.Code, Process: e.Rank, Log: s.logName(e.Rank)}
	if e.ok() {
		return berth.Exit{}
	}
	who := fmt.Sprintf("process %d (node %d)", e.Rank, s.nodeOf(e.Rank))
	switch {
	case e.Signal != 0:
		x.Signal = signalName(e.Signal)
		x.Reason = who + " was ended by " + x.Signal
	case e.Code == 127:
		x.Reason = who + " ended with exit code 127: a program the command names was not found, see the end of its log"
	case e.Code == 126:
		x.Reason = who + " ended with exit code 126: a program the command names could not be executed, see the end of its log"
	default:
		x.Reason = fmt.Sprintf("%s ended with exit code %d", who, e.Code)
		if e.Line != "" {
			x.Reason += ": " + e.Line
		}
	}
	return x
}

func signalName(n int) string {
	if s := unix.SignalName(unix.Signal(n)); s != "" {
		return s
	}
	return fmt.Sprint("signal ", n)
}

// logName is the name of a process's log below the artifacts. Those of other nodes are named alike.
func (s *Spec) logName(rank int) string {
	for _, p := range s.Group.Processes {
		if p.Rank == rank {
			return p.Log
		}
	}
	first := s.Group.Processes[0]
	return strings.Replace(first.Log, fmt.Sprintf("_%d.", first.Rank), fmt.Sprintf("_%d.", rank), 1)
}

// nodeOf is the node a process runs on: node by node as many as it has slots, but TensorFlow's are
// dealt out to the nodes in turn.
func (s *Spec) nodeOf(rank int) int {
	if strings.EqualFold(s.Group.Type, "tensorflow") {
		return rank % len(s.Group.Nodes)
	}
	for i, n := range s.Group.Nodes {
		if rank < n.Slots {
			return i
		}
		rank -= n.Slots
	}
	return 0
}
