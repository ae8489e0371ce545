package runner_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// TestStopComesAgain: a server repeats its request to stop until the task is over. What the command
// left is kept nevertheless.
func TestStopComesAgain(t *testing.T) {
	control := new(runner.Control)
	var puts atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if puts.Add(1) == 1 {
			control.Stop(runner.Stop{})
			w.WriteHeader(http.StatusServiceUnavailable) // it is sent again, unless the upload was given up
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer s.Close()
	b := newBench(t, "echo half > ${{outputs.o}}/x; sleep 1000")
	b.options.Control = control
	b.launch.Grace = time.Millisecond
	b.launch.Outputs = map[string]berth.LaunchOutput{"o": {Type: "uri_folder", URL: s.URL + "/account/container/o"}}
	written := filepath.Join(b.options.Dir, "outputs", "o", "x")
	go func() {
		for {
			if info, err := os.Stat(written); err == nil && info.Size() > 0 {
				control.Stop(runner.Stop{})
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if exit := b.run(); exit.Cause != "canceled" || puts.Load() != 2 {
		t.Errorf("%+v after %d attempts at keeping what it left", exit, puts.Load())
	}
}
