// Package host keeps a machine's tasks: one long-lived process runs them all, and another one above
// it sees to it that killing the first loses nothing.
//
// The upper process, the reaper, does two things: it starts the lower one again when it dies, and
// it takes the exit status of tasks whose parent died (see reaper.go). The lower one, the worker,
// is a server on a unix socket in front of package runner. What the worker must not forget is in a
// journal (see journal.go). When the reaper dies the worker turns into the next reaper, keeping its
// process id and with it its children. So either may be killed at any time; when both are killed at
// once tasks run on, and the next host finds them; how those end that outlive its coming the kernel
// says, if it is new enough. A host that is asked to end (SIGTERM to either) does so when no
// command runs, see retire.go.
//
// Directory layout:
//
//	DIR/host.sock    the worker's socket
//	DIR/program      the command line the host is started again with
//	DIR/lock         held as long as one of the two lives
//	DIR/journal      what the worker must remember
//	DIR/reaped       exit statuses the reaper collected
//	DIR/host.log     what both have to say
//	DIR/ca-*.pem     certificates of servers, for the commands
//	DIR/tasks/ID/    the directory of a task
//	DIR/spare/       directories for the next tasks
//	DIR/trash/       directories on their way out
//	DIR/envs/        environments, see package envs
package host

import (
	"encoding/json"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// Info is what a host says of itself.
type Info struct {
	Version string `json:"version"`
	Build   string `json:"build"` // of the program, see Build
	PID     int    `json:"pid"`   // of the worker
	Reaper  int    `json:"reaper"`
	Tasks   int    `json:"tasks"`
}

// Status is what a host says of one task.
type Status struct {
	Task  berth.TaskID    `json:"task"`
	State berth.TaskState `json:"state"`
	Exit  *berth.Exit     `json:"exit,omitempty"`
	PID   int             `json:"pid,omitempty"`  // of the command's first process, while it runs on the machine itself
	GPUs  []int           `json:"gpus,omitempty"` // that it was given
	// Reported says that the server has taken the report of the end.
	Reported bool `json:"reported,omitempty"`
}

// Build identifies the program file at path: another build has another one.
func Build(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(info.Size(), 36) + "-" + strconv.FormatInt(info.ModTime().UnixNano(), 36)
}

// Stop is a request to end a task.
type Stop = runner.Stop

// stopRequest, tasksRequest, removeRequest and restartRequest are bodies of calls.
type stopRequest struct {
	Task  berth.TaskID  `json:"task"`
	Grace time.Duration `json:"grace,omitempty"`
	Cause string        `json:"cause,omitempty"`
	Why   string        `json:"why,omitempty"`
}

type tasksRequest struct {
	Term      int64  `json:"term,omitempty"`
	TermProof string `json:"termProof,omitempty"`
}

type removeRequest struct {
	Tasks []berth.TaskID `json:"tasks"`
	Term  int64          `json:"term,omitempty"`

	TermProof string `json:"termProof,omitempty"`
}

// startAnswer and removeAnswer have the tasks with which it failed.
type (
	startAnswer  map[berth.TaskID]failure
	removeAnswer map[berth.TaskID]failure
)

type restartRequest struct {
	Command []string `json:"command"`
}

// failure is how errors travel.
type failure struct {
	Code berth.Code `json:"code"`
	Msg  string     `json:"msg"`
	Full bool       `json:"full,omitempty"` // as [berth.IsDiskFull]
}

func (f failure) err() error {
	err := &berth.Error{Code: f.Code, Msg: f.Msg}
	if f.Full {
		err.Err = syscall.ENOSPC
	}
	return err
}

func failureOf(err error) failure {
	return failure{Code: berth.CodeOf(err), Msg: err.Error(), Full: berth.IsDiskFull(err)}
}

func encodeFailure(err error) []byte {
	b, _ := json.Marshal(failureOf(err))
	return b
}

// socketPath is where the worker of dir listens. Paths of unix sockets are limited to about a
// hundred bytes, so a deep directory has its socket in a private one for temporary files.
func socketPath(dir string) string {
	p := filepath.Join(dir, "host.sock")
	if len(p) <= 100 {
		return p
	}
	h := fnv.New64a()
	h.Write([]byte(dir))
	return filepath.Join(os.TempDir(), "berth-"+strconv.Itoa(os.Getuid()), strconv.FormatUint(h.Sum64(), 36)+".sock")
}

// checkID says whether a task's id can be the name of a directory.
func checkID(id berth.TaskID) error {
	return berth.CheckName("task", string(id))
}
