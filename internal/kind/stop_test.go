package kind_test

import (
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
)

// A job that somebody other than its user had stopped says so, however its task ended by it.
func TestStoppedForACause(t *testing.T) {
	done := func(e berth.Exit) []*berth.Task {
		return []*berth.Task{{ID: "k.1", Attempt: 1, State: berth.TaskDone, Stop: true, Exit: &e}}
	}
	for _, tt := range []struct {
		name   string
		tasks  []*berth.Task
		cancel bool
		status berth.JobStatus
		cause  string
		reason string
	}{
		{"before it was placed", nil, true, berth.Canceled, "", "the budget is used up"},
		{"asked to end", done(berth.Exit{Code: 143, Signal: "SIGTERM", Cause: "canceled", Reason: "it was asked to stop"}), true, berth.Canceled, "budget", "the budget is used up"},
		{"ended well just then", done(berth.Exit{}), true, berth.Completed, "", "the command ended with exit code 0"},
		{"failed by itself", done(berth.Exit{Code: 3}), true, berth.Failed, "", "the command ended with exit code 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := berth.JobState{Cancel: tt.cancel, StopCause: "budget", StopWhy: "the budget is used up"}
			s := command(t).Step(kind.Job{Name: "j", Key: "k", Status: berth.CancelRequested, State: st}, tt.tasks)
			cause := ""
			if s.State.Exit != nil {
				cause = s.State.Exit.Cause
			}
			if s.Status != tt.status || s.State.Reason != tt.reason || cause != tt.cause {
				t.Errorf("%s %q %q, want %s %q %q", s.Status, cause, s.State.Reason, tt.status, tt.cause, tt.reason)
			}
			if again := command(t).Step(kind.Job{Name: "j", Key: "k", Status: berth.CancelRequested, State: s.State}, tt.tasks); again.State.Reason != s.State.Reason || again.Status != s.Status {
				t.Errorf("not the same twice: %+v", again.State)
			}
		})
	}
}
