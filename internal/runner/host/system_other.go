//go:build !linux

package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"syscall"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// Systems other than Linux hand orphans to nobody but the first process, so a host is its worker
// alone: tasks survive the server, but not the host.

// upper is the role of a host's first process.
const upper = "worker"

// self is this program.
func self() string {
	exe, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return exe
}

// bootID names the time since the machine was started. It is not known here: no task is taken up
// again anyway.
func bootID() (string, error) { return "unknown", nil }

func quietChildren() {}

func ordinarySignals() {}

func stampOf(string) (stamp [3]syscall.Timespec, ok bool) { return stamp, false }

func moveUnshared(int, string, string) bool { return false }

func alone() bool { return false }

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

func reap(string, []string, bool, *slog.Logger) error {
	return berth.Errorf(berth.Unsupported, "a host has no reaper on %s", runtime.GOOS)
}

type reaped struct{ path string }

func (*reaped) status(context.Context, int, uint64) (runner.WaitStatus, bool) {
	return runner.WaitStatus{}, false
}

type sweeper struct {
	log   *slog.Logger
	wake  chan struct{}
	ended map[string]bool
}

func (s *sweeper) add(string)              {}
func (s *sweeper) run(ctx context.Context) { <-ctx.Done() }
