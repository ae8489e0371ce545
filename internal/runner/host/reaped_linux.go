package host

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berthml/berth/internal/runner"
)

// reaped is the file in which the reaper notes how the processes ended that it inherited: one line
// each, PID BORN STATUS. It is written before the process is reaped, so while a process is there
// its line may come, and when it is gone the line is there or never will be.
type reaped struct {
	path string
	mu   sync.Mutex
}

// keepReaped and maxReaped bound the file: at maxReaped lines it is cut to the last keepReaped.
const keepReaped, maxReaped = 4096, 8192

// note adds a line.
func (r *reaped) note(pid int, startTime uint64, ws syscall.WaitStatus) error {
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%d %d %d\n", pid, startTime, ws)
	return err
}

// trim keeps the file small.
func (r *reaped) trim() error {
	b, err := os.ReadFile(r.path)
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(string(b), "\n")
	if len(lines) <= maxReaped {
		return nil
	}
	tmp := r.path + ".new"
	if err := os.WriteFile(tmp, []byte(strings.Join(lines[len(lines)-keepReaped:], "")), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, r.path)
}

// find looks for a process in the file.
func (r *reaped) find(pid int, startTime uint64) (runner.WaitStatus, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.Open(r.path)
	if err != nil {
		return runner.WaitStatus{}, false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var p int
		var b uint64
		var ws syscall.WaitStatus
		if n, _ := fmt.Sscan(s.Text(), &p, &b, (*uint32)(&ws)); n == 3 && p == pid && b == startTime {
			return runner.StatusOf(ws), true
		}
	}
	return runner.WaitStatus{}, false
}

// status waits until it is known how a process ended, or certain that nobody will say.
func (r *reaped) status(ctx context.Context, pid int, startTime uint64) (runner.WaitStatus, bool) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		b, parent, ok := runner.StartTime(pid)
		if s, found := r.find(pid, startTime); found {
			return s, true
		}
		if !ok || b != startTime || parent != os.Getppid() {
			return runner.WaitStatus{}, false
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return runner.WaitStatus{}, false
		}
	}
}
