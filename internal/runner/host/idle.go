package host

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// unusedTime is how long a host stays that has nothing to do and that nobody calls.
const unusedTime = 10 * time.Minute

// watchIdle ends a host that nobody needs. What it knows of finished tasks is in the journal, for
// the next one.
func (w *worker) watchIdle(ctx context.Context) {
	s, err := loadSettings(w.dir)
	if err != nil {
		w.log.Error("reading the settings", "err", err)
	}
	every := 10 * time.Second
	if s.KeepAlive {
		every = 30 * time.Second // a machine may have hundreds of hosts that wait
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	busy := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		active := false
		w.mu.Lock()
		for _, j := range w.jobs {
			if j.state != berth.TaskDone || !j.reported {
				w.used, active = time.Now(), true
			}
		}
		since := time.Since(w.used)
		w.mu.Unlock()
		if busy && !active {
			w.memory.Used() // its last task has ended
		}
		busy = active
		if w.homeless() {
			w.vacate(ctx)
		}
		if since > unusedTime && !s.KeepAlive {
			w.quit(errQuit)
		}
	}
}

// homeless says whether the host's directory is not where it was.
func (w *worker) homeless() bool {
	var now, own syscall.Stat_t
	if err := syscall.Stat(w.dir, &now); err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return syscall.Fstat(int(w.at.Fd()), &own) == nil && (now.Dev != own.Dev || now.Ino != own.Ino)
}

// vacate ends a host whose directory is gone. Of one that was moved the next host finds the
// commands; those of one that was deleted nobody would ever find.
func (w *worker) vacate(ctx context.Context) {
	var own syscall.Stat_t
	if syscall.Fstat(int(w.at.Fd()), &own) == nil && own.Nlink == 0 {
		w.log.Warn("the directory was deleted: its tasks end")
		for w.stopAll() {
			select {
			case <-w.changed:
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
		}
	}
	w.quit(errQuit)
}

// stopAll asks every command to end, and says whether there are any.
func (w *worker) stopAll() (left bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.running {
			left = true
			j.control.Stop(runner.Stop{Grace: 5 * time.Second, Why: "the directory of its runner host was deleted"})
		}
	}
	return left
}
