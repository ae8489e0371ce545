package host

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth/internal/runner"
)

// A process that left its task's session outlives the command, and becomes a child of the reaper
// when its parent ends. The sweeper ends such processes once their task is over.
type sweeper struct {
	log  *slog.Logger
	wake chan struct{}

	mu    sync.Mutex
	ended map[string]bool // directories of tasks that may have left something
}

// add asks for a sweep after the task of a directory, which is over.
func (s *sweeper) add(dir string) {
	s.mu.Lock()
	s.ended[dir] = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run sweeps when asked, a few times a second at most.
func (s *sweeper) run(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	tick.Stop()
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		ended := s.ended
		s.ended = map[string]bool{}
		s.mu.Unlock()
		// What ended with its group may need a moment to be gone, and what is found may fork: twice
		// is enough for both.
		for range 2 {
			for _, pid := range runner.Leftovers(orphans(), ended) {
				s.log.Info("ending a process that outlived its task", "pid", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			tick.Reset(200 * time.Millisecond)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// alone says whether the reaper has no child but this worker: then no process of an ended task is
// left.
func alone() bool {
	var buf [64]byte
	reaper := strconv.Itoa(os.Getppid())
	// Orphans go to the first thread of the process that inherits them; the worker may be another
	// thread's child.
	fd, err := syscall.Open("/proc/"+reaper+"/task/"+reaper+"/children", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, buf[:])
	if err != nil {
		return false
	}
	list := strings.TrimSpace(string(buf[:n]))
	return list == "" || list == strconv.Itoa(os.Getpid())
}

// orphans are the children of the reaper besides this worker.
func orphans() []int {
	var out []int
	for _, pid := range runner.ChildrenOf(os.Getppid()) {
		if pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out
}
