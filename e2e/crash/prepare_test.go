package crash_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A slowInput is data that never comes: whoever fetches it is preparing a task.
type slowInput struct {
	*httptest.Server
	asked atomic.Int32
}

func newSlowInput(t *testing.T) *slowInput {
	s := &slowInput{}
	over := make(chan struct{})
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}))
	t.Cleanup(func() {
		close(over)
		s.Close()
	})
	return s
}

// prepare submits a job that waits for the input.
func (w *chaos) prepare(name string, s *slowInput) {
	w.sure("PUT", w.ws+"/jobs/"+name, map[string]any{"properties": map[string]any{
		"jobType": "Command", "command": "cat ${{inputs.x}}", "inputs": map[string]any{"x": map[string]any{"jobInputType": "uri_file", "uri": s.URL + "/x", "mode": "Download"}},
	}})
}

// untilAsked waits until the input was asked for n times.
func (w *chaos) untilAsked(s *slowInput, n int32) {
	w.t.Helper()
	w.until(fmt.Sprintf("preparation %d", n), time.Minute, func() (bool, error) { return s.asked.Load() >= n, fmt.Errorf("%d", s.asked.Load()) })
}

// role is the process of the runner host with a role.
func (w *chaos) role(name string) (pid int) {
	w.t.Helper()
	w.until(name, time.Minute, func() (bool, error) {
		for _, p := range w.hosts() {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
			if err == nil && strings.Contains(string(b), "\x00--role\x00"+name+"\x00") {
				pid = p
			}
		}
		return pid != 0, nil
	})
	return pid
}

// TestPreparationEndsTheWorker: a task with which the worker of the runner host ends while it
// prepares it is tried once more, and then fails with the reason. The others go on.
func TestPreparationEndsTheWorker(t *testing.T) {
	w, s := newChaos(t, ""), newSlowInput(t)
	w.prepare("deadly", s)
	for n := range int32(2) {
		w.untilAsked(s, n+1)
		w.signal(syscall.SIGKILL, w.role("worker"))
	}
	var o outcome
	w.until("end", time.Minute, func() (_ bool, err error) {
		o, err = w.outcome("deadly")
		return o.Status == "Failed" || s.asked.Load() > 2, fmt.Errorf("%+v %w", o, err)
	})
	if s.asked.Load() != 2 || !strings.Contains(o.Berth.Reason, "ended twice while") {
		t.Errorf("prepared %d times, %+v", s.asked.Load(), o)
	}
	w.put("next", "true", w.on)
	w.until("next", time.Minute, func() (bool, error) {
		o, err := w.outcome("next")
		return o.Status == "Completed", fmt.Errorf("%+v %w", o, err)
	})
}

// TestCancelBeforePreparingAgain: a job that was canceled while the worker was away is not prepared
// again.
func TestCancelBeforePreparingAgain(t *testing.T) {
	w, s := newChaos(t, ""), newSlowInput(t)
	w.prepare("unwanted", s)
	w.untilAsked(s, 1)
	reaper := w.role("reaper")
	worker := w.role("worker")
	w.signal(syscall.SIGSTOP, reaper) // nobody starts the worker again before the job is canceled
	w.signal(syscall.SIGKILL, worker)
	w.sure("POST", w.ws+"/jobs/unwanted/cancel", nil)
	w.until("the cancel", time.Minute, func() (bool, error) {
		o, err := w.outcome("unwanted")
		return o.Status == "CancelRequested", fmt.Errorf("%+v %w", o, err)
	})
	w.signal(syscall.SIGCONT, reaper)
	w.until("end", time.Minute, func() (bool, error) {
		o, err := w.outcome("unwanted")
		return o.Status == "Canceled", fmt.Errorf("%+v %w", o, err)
	})
	if n := s.asked.Load(); n != 1 {
		t.Errorf("prepared %d times", n)
	}
}
