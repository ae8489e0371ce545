//go:build linux

package runner_test

import (
	"log/slog"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

func TestAlone(t *testing.T) {
	s := newServer()
	url := serve(t, s)
	dir := t.TempDir()
	l := berth.Launch{Task: "job.1", Job: "job", Command: "echo once; exit 6", Home: berth.Home{URL: url, Token: "token"}}
	for range 2 { // the second time the queueing system has started it again
		exit, err := runner.Alone(t.Context(), l, dir, nil, nil, slog.New(slog.DiscardHandler))
		if err != nil || exit.Code != 6 {
			t.Fatalf("exit %+v, %v", exit, err)
		}
	}
	s.set(func() {
		if string(s.log) != "once\n" {
			t.Errorf("log %q", s.log)
		}
		last := 0
		for _, r := range s.reports {
			if r.Seq <= last {
				t.Errorf("report %d after %d", r.Seq, last)
			}
			last = r.Seq
		}
		if end := s.reports[len(s.reports)-1]; end.State != berth.TaskDone || end.Exit.Code != 6 {
			t.Errorf("last report %+v", end)
		}
	})
}

func TestAloneStopped(t *testing.T) {
	s := newServer()
	stop := new(runner.Control)
	stop.Stop(runner.Stop{Why: "the queue wants the node back"})
	l := berth.Launch{Task: "job.1", Command: "sleep 600", Home: berth.Home{URL: serve(t, s), Token: "token"}}
	exit, err := runner.Alone(t.Context(), l, t.TempDir(), nil, stop, slog.New(slog.DiscardHandler))
	if err != nil || exit.Cause != "canceled" || exit.Reason != "the queue wants the node back" {
		t.Errorf("exit %+v, %v", exit, err)
	}
}
