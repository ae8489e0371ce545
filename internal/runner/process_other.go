//go:build !linux

package runner

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"github.com/berthml/berth"
)

var errPlatform = berth.Errorf(berth.Unsupported, "tasks do not run on %s", runtime.GOOS)

func itoa(n int) string { return strconv.Itoa(n) }

func signalName(n int) string { return "signal " + itoa(n) }

type process struct {
	pid   int
	born  uint64
	child bool
}

func start(*Spec) (*process, error)            { return nil, errPlatform }
func adopt(int, uint64) *process               { return nil }
func (p *process) wait(context.Context) error  { return errPlatform }
func (p *process) reap() (WaitStatus, error)   { return WaitStatus{}, errPlatform }
func (p *process) close()                      {}
func findMarked(berth.TaskID) (int, uint64)    { return 0, 0 }
func killGroup(int)                            {}
func killTree(*process, *cgroup, berth.TaskID) {}

type ending struct{}

func (e *ending) begin(*process, *cgroup, berth.TaskID, time.Duration) {}
func (e *ending) expired() <-chan time.Time                            { return nil }
func (e *ending) kill(*process, *cgroup, berth.TaskID)                 {}
func (e *ending) close()                                               {}

type cgroup struct{}

func openCgroup(berth.TaskID) *cgroup { return nil }
func (t *task) limit(*Spec) error     { return nil }
func (c *cgroup) remove()             {}
func (c *cgroup) oomKilled() bool     { return false }

const environMark = "BERTH_TASK"

func openAppend(string) (int, error) { return -1, errPlatform }
func closeLog(int)                   {}
