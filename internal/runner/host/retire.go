package host

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// errEnding refuses what would begin while the worker ends. The next one begins it.
var errEnding = errors.New("the runner host is ending")

// lastReports is how long a host that was asked to end waits for a server to take what it has to
// say. The journal has it all, and the next host says it again; but that one may be a while in
// coming.
const lastReports = 3 * time.Second

// retire waits for a signal that asks the host to end, and ends it when no command runs any more:
// whoever is to learn how a command ends has to be there then. A service manager sends such signals
// to commands too when the machine is stopped, and they end by that.
func (w *worker) retire(ctx context.Context, signals <-chan os.Signal) {
	select {
	case <-signals:
	case <-ctx.Done():
		return
	}
	w.log.Info("asked to end; it will when no command runs")
	var patience <-chan time.Time
	for late := false; ; {
		running, told := w.leave(late)
		switch {
		case running:
			patience, late = nil, false
		case told || late:
			return
		case patience == nil:
			patience = time.After(lastReports)
		}
		select {
		case <-w.changed:
		case <-patience:
			late = true
		case <-ctx.Done():
			return
		}
	}
}

// leave ends the worker when no command runs and, unless it is late, every end was reported.
func (w *worker) leave(late bool) (running, told bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	told = true
	for _, j := range w.jobs {
		running = running || j.running
		told = told && j.state == berth.TaskDone && j.reported
	}
	if !running && (told || late) {
		w.quit(errQuit)
	}
	return running, told
}

// step notes how far the command of a job is. None begins after the worker was told to end.
func (w *worker) step(j *job, m runner.Mark) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Step == runner.StepExec && !j.running && w.ctx.Err() != nil {
		return errEnding
	}
	j.pid, j.running = m.PID, m.Step == runner.StepExec || m.Step == runner.StepStarted
	if !j.running {
		w.change()
	}
	return nil
}

// change tells retire to look again.
func (w *worker) change() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
