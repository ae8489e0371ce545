package runner

import "github.com/berthml/berth"

// Spec is a command about to be started.
type Spec struct {
	Path string   // of the program
	Args []string // with the program's own name first
	Env  []string
	Dir  string
	Log  int // descriptor that takes standard output and error
	// Cgroup limits the process, and finds all of its tree. It may be nil.
	cgroup *cgroup
}

// WaitStatus is how a process ended.
type WaitStatus struct {
	Code   int // exit code; 128+N for signal N
	Signal int // 0: it ended by itself
	// What it and the children it waited for used, where known.
	CPUSeconds float64
	MaxRSS     int64 // bytes
}

// exit says how the process ended in the words of a report.
func (w WaitStatus) exit() *berth.Exit {
	e := &berth.Exit{Code: w.Code}
	switch {
	case w.Signal != 0:
		e.Signal = signalName(w.Signal)
		e.Reason = "the command was ended by " + e.Signal
	case w.Code == 127:
		e.Reason = "the command ended with exit code 127: a program it names was not found, see the end of its log"
	case w.Code == 126:
		e.Reason = "the command ended with exit code 126: a program it names could not be executed, see the end of its log"
	case w.Code != 0:
		e.Reason = "the command ended with exit code " + itoa(w.Code)
	}
	return e
}
