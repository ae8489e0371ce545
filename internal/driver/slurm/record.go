package slurm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dir"
)

// record is what is known of a task until it is removed.
type record struct {
	Task berth.TaskID `json:"task"`
	// Others are the other tasks of a gang, by rank, and Removed those of all that were removed.
	Others  []berth.TaskID `json:"others,omitempty"`
	Removed []berth.TaskID `json:"removed,omitempty"`

	// Cluster is set of the job that is a node of a managed cluster, see MakeNode.
	Cluster string `json:"cluster,omitempty"`

	// Array is the name of the job where it is an array of several tasks, and Index the task's in
	// it.
	Array string `json:"array,omitempty"`
	Index int    `json:"index,omitempty"`

	Name  string        `json:"name"`           // of its job, unless it is an array's
	Job   string        `json:"job,omitempty"`  // number of its job; empty until it is known
	Tried time.Time     `json:"tried,omitzero"` // when it was last submitted without an answer
	Grace time.Duration `json:"grace,omitempty"`
	Stop  *driver.Stop  `json:"stop,omitempty"`
	By    time.Time     `json:"by,omitzero"` // when a task that was stopped is ended at once
	Node  string        `json:"node,omitempty"`
	Exit  *berth.Exit   `json:"exit,omitempty"`

	// Of this process alone:

	array     *array          // that it is in; nil when its job is its own
	unsaved   bool            // it need not be written before it is submitted
	busy      chan struct{}   // closed when its submission has ended; nil when there is none
	submitted time.Time       // zero when an earlier process did it
	state     berth.TaskState // as it was last seen
	why       string          // it waits
	gone      time.Time       // since when Slurm does not list its job
	pressed   time.Time       // when it was last asked to stop
}

const recordSuffix = ".json"

func (d *Driver) recordPath(r *record) string {
	return filepath.Join(d.c.Dir, "tasks", r.Name+recordSuffix)
}

// save keeps a record. The mutex is held.
func (d *Driver) save(r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := dir.WriteFile(d.recordPath(r), b); err != nil {
		return berth.Errorf(berth.Unavailable, "the record of task %s cannot be kept: %w", r.Task, err)
	}
	return nil
}

func readRecord(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, berth.Errorf(berth.Internal, "the record of a task at %s cannot be read: %w", path, err)
	}
	return r, nil
}

// jobName is the name of the job of a record.
func (r *record) jobName() string {
	if r.Array != "" {
		return r.Array
	}
	return r.Name
}

// listedName is what nameOf says of the job of a record.
func (r *record) listedName() string {
	if r.Array != "" {
		return r.Array + "_" + strconv.Itoa(r.Index)
	}
	return r.Name
}

// hasIndex says whether the number of a job is that of the record, of all jobs of its name.
func (r *record) hasIndex(number string) bool {
	_, index, isArray := strings.Cut(number, "_")
	return !isArray && r.Array == "" || isArray && index == strconv.Itoa(r.Index)
}

// nameOf is the name of a job, with the index where it is one of an array.
func nameOf(j job) string {
	if _, index, ok := strings.Cut(j.number, "_"); ok {
		return j.name + "_" + index
	}
	return j.name
}

// handle and taskOf are the two ends of a handle: a version and the task's id.
func handle(id berth.TaskID) driver.Handle { return driver.Handle("slurm1:" + string(id)) }

func taskOf(h driver.Handle) (berth.TaskID, error) {
	const version = "slurm1:"
	if len(h) < len(version) || h[:len(version)] != version {
		return "", berth.Errorf(berth.Invalid, "%q is not a handle of the Slurm driver", h)
	}
	return berth.TaskID(h[len(version):]), nil
}

// exitOf is how a task ended, by what Slurm says of its job.
func exitOf(r *record, j job) *berth.Exit {
	e := &berth.Exit{Code: j.code}
	switch {
	case j.state == "COMPLETED" && !r.unasked():
		return &berth.Exit{}
	case r.Stop != nil:
		e.Code, e.Cause, e.Reason = 143, r.Stop.Cause, r.Stop.Why
		if e.Cause == "" {
			e.Cause = "canceled"
		}
		if e.Reason == "" {
			e.Reason = "it was asked to stop"
		}
		return e
	}
	if e.Code == 0 {
		e.Code = -1
	}
	job := "Slurm's job " + r.Job
	if why := unrun(r, j); why != "" {
		e.Code, e.Cause, e.Reason = -1, "evicted", job+" "+why+", and nothing of its task had run"
		return e
	}
	if j.state == "CANCELLED" && j.restarts > 0 {
		e.Cause, e.Reason = "lost", strings.TrimSpace("its node "+cmp.Or(j.node, r.Node))+" did not answer when Slurm gave it job "+r.Job
		if r.unasked() {
			e.Cause = "evicted" // nothing of it has run
		}
		return e
	}
	switch j.state {
	case "FAILED":
		switch j.code {
		case noProgram:
			e.Code, e.Cause, e.Reason = -1, "staging", "node "+j.node+" of Slurm could not fetch the program from the server with curl, wget or python3"
		case berth.ExitNoRoom:
			e.Code, e.Cause, e.Reason = -1, "staging", "node "+j.node+" of Slurm has no room in its directory for temporary files"
		case seesHome:
			e.Code, e.Cause, e.Reason = -1, "staging", "node "+j.node+" of Slurm can read the server's folder and so could the job; keep the folder on a disk that the nodes do not see, or set `slurm: trusted` in berth.yaml"
		case berth.ExitRunner:
			e.Code, e.Cause, e.Reason = -1, "staging", "the runner could not work on node "+j.node+" of Slurm"
		case berth.ExitNoStep:
			e.Code, e.Cause, e.Reason = -1, "staging", "node "+j.node+" of Slurm could not start a step on the nodes of the job; jobs of several nodes need srun and scontrol there"
		default:
			e.Reason = fmt.Sprintf("the command ended with exit code %d", e.Code)
			if j.vague {
				e.Reason = fmt.Sprintf("the command ended with exit code %d or %d: Slurm's accounts do not tell them apart", e.Code, e.Code+128)
			}
			if j.unsaid {
				e.Reason = "the command failed, and Slurm's accounts do not say with which exit code"
			}
			if len(r.Others) > 0 && !j.unsaid {
				e.Reason = fmt.Sprintf("a task of %s ended with exit code %d", job, e.Code)
			}
		}
	case "TIMEOUT", "DEADLINE":
		e.Cause, e.Reason = "timeout", job+" has used up its time limit"
	case "OUT_OF_MEMORY":
		e.Code, e.OOM, e.Reason = 137, true, job+" was ended because it ran out of memory"
	case "PREEMPTED":
		e.Cause, e.Reason = "evicted", job+" was preempted"
	case "NODE_FAIL", "BOOT_FAIL":
		e.Cause, e.Reason = "lost", "the node "+j.node+" of "+job+" failed"
	case "CANCELLED", "REVOKED":
		e.Cause, e.Reason = "canceled", job+" was canceled there"
	case "COMPLETED":
		e.Cause, e.Reason = "lost", job+" ended before it had run its task"
	case "":
		e.Cause, e.Reason = "lost", "Slurm does not know "+r.Name+" any more, and has no accounts of it"
	default:
		e.Cause, e.Reason = "lost", job+" ended as "+j.state
	}
	return e
}

// unrun is how a job ended of whose task nothing has run, so that it can start again; empty where
// that is not known, or would be so again. Whoever asks for the task later is not given it.
func unrun(r *record, j job) string {
	switch {
	case j.state == "FAILED" && j.code == berth.ExitAway && r.array != nil && r.array.Turns:
		return strings.TrimRight("gave up waiting for the server on node "+cmp.Or(j.node, r.Node), " ")
	case !r.unasked():
		return ""
	}
	switch j.state {
	case "TIMEOUT":
		return "used up its time limit before it could ask the server"
	case "NODE_FAIL", "BOOT_FAIL":
		return strings.TrimRight("was on node "+cmp.Or(j.node, r.Node), " ") + ", which failed"
	case "":
		return "is not known to Slurm any more, which has no accounts of it"
	}
	return ""
}
