package runner

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// Spec is a command about to be started.
type Spec struct {
	Command string // for a shell
	Env     []string
	Dir     string
	env     *envs.Env // nil: the machine as it is
	log     int       // descriptor that takes standard output and error
	cgroup  *cgroup   // limits the process, and finds all of its tree; may be nil
	room    *room     // the mounts it sees; nil for those of the machine
	holds   []uintptr // descriptors it inherits
	// stdin is standard input; nil is empty. With terminal it is a terminal, on which output goes
	// too, and which controls the command.
	stdin    *os.File
	terminal bool
}

// running is a command that was started: a process of this machine or a container.
type running interface {
	// wait blocks until it has ended, which it says, or until w has events. It is called again
	// after those.
	wait(ctx context.Context, w *waker) (ended bool, err error)
	// ended says how it ended, and ends what it left behind; false when nobody knows.
	ended(ctx context.Context) (s WaitStatus, known bool)
	// ask asks every process of it to end, kill makes them.
	ask()
	kill()
	// sample is what it uses now; false when that is not known.
	sample(now time.Time) (berth.Usage, bool)
	// mark is how a later runner finds it.
	mark() Mark
	// close lets go of it. over says that it ended and that its end is kept: then the system may
	// forget it.
	close(over bool)
}

// WaitStatus is how a process ended.
type WaitStatus struct {
	Code   int // exit code; 128+N for signal N
	Signal int // 0: it ended by itself
	OOM    bool
	// What it and the children it waited for used, where known.
	CPUSeconds float64
	MaxRSS     int64 // bytes
}

// exit says how the process ended in the words of a report.
func (w WaitStatus) exit() *berth.Exit {
	e := &berth.Exit{Code: w.Code, OOM: w.OOM}
	switch {
	case w.Signal != 0:
		e.Signal = signalName(w.Signal)
		e.Reason = "the command was ended by " + e.Signal
	case w.Code == 127:
		e.Reason = "the command ended with exit code 127: a program it names was not found, see the end of its log"
	case w.Code == 126:
		e.Reason = "the command ended with exit code 126: a program it names could not be executed, see the end of its log"
	case w.Code != 0:
		e.Reason = failed(w.Code)
	}
	return e
}

// failed is what is said of a command that ended with a code that is not 0.
func failed(code int) string { return "the command ended with exit code " + strconv.Itoa(code) }
