package kind_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/kind"
)

func command(t interface{ Fatal(...any) }) kind.Kind {
	k, err := kind.Of("Command")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestOf(t *testing.T) {
	for typ, code := range map[string]berth.Code{"command": "", "COMMAND": "", "": berth.Invalid, "Sweep": berth.Unsupported} {
		if _, err := kind.Of(typ); berth.CodeOf(err) != code {
			t.Errorf("Of(%q) = %v", typ, err)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		exit   *berth.Exit
		cancel bool
		want   berth.JobStatus
		reason string
	}{
		{&berth.Exit{}, false, berth.Completed, "the command ended with exit code 0"},
		{&berth.Exit{Code: 3}, false, berth.Failed, "the command ended with exit code 3"},
		{&berth.Exit{Code: 137, Signal: "SIGKILL"}, false, berth.Failed, "the command was ended by SIGKILL"},
		{&berth.Exit{Code: 137, Signal: "SIGKILL", OOM: true}, false, berth.Failed, "the kernel ended the command because it ran out of memory"},
		{&berth.Exit{Code: -1, Cause: "lost", Reason: "the machine was restarted"}, false, berth.Failed, "the machine was restarted"},
		{&berth.Exit{Code: 143, Signal: "SIGTERM", Cause: "canceled"}, true, berth.Canceled, "canceled by the user"},
		{&berth.Exit{Code: 143, Signal: "SIGTERM"}, true, berth.Canceled, "canceled by the user"},
		{&berth.Exit{}, true, berth.Completed, "the command ended with exit code 0"}, // it had ended before the request came
		{nil, false, berth.Failed, "the task ended, but how is not recorded"},
	} {
		s := command(t).Step(kind.Job{Name: "j", Status: berth.Running, State: berth.JobState{Cancel: c.cancel}},
			[]*berth.Task{{ID: "j.1", Attempt: 1, State: berth.TaskDone, Exit: c.exit}})
		if s.Status != c.want || s.State.Reason != c.reason {
			t.Errorf("%+v cancel=%v: %s, %q", c.exit, c.cancel, s.Status, s.State.Reason)
		}
	}
}

// TestStepLaws: a step that was taken is not taken again, a job that ended stays as it is, and
// every status has a reason once its task has one.
func TestStepLaws(t *testing.T) {
	states := []berth.TaskState{berth.TaskWaiting, berth.TaskPlaced, berth.TaskStarting, berth.TaskRunning, berth.TaskEnding, berth.TaskDone}
	rapid.Check(t, func(t *rapid.T) {
		j := kind.Job{
			Name:   "j",
			Key:    "j",
			Status: rapid.SampledFrom([]berth.JobStatus{berth.NotStarted, berth.Queued, berth.Preparing, berth.Running, berth.CancelRequested, berth.Completed, berth.Failed, berth.Canceled}).Draw(t, "status"),
			State:  berth.JobState{Compute: "local", Cancel: rapid.Bool().Draw(t, "cancel")},
		}
		var tasks []*berth.Task
		for i := range rapid.IntRange(0, 2).Draw(t, "tasks") {
			task := &berth.Task{ID: berth.TaskID(fmt.Sprint("j.", i+1)), Attempt: i + 1, State: rapid.SampledFrom(states).Draw(t, "state"), Why: "because"}
			if task.State == berth.TaskDone {
				task.Exit = &berth.Exit{Code: rapid.IntRange(0, 2).Draw(t, "code")}
			}
			tasks = append(tasks, task)
		}
		k := command(t)
		s := k.Step(j, tasks)
		if d := cmp.Diff(s, k.Step(j, tasks)); d != "" {
			t.Fatalf("not deterministic: %s", d)
		}
		if j.Status.Terminal() && (s.Status != j.Status || len(s.Start)+len(s.Stop) > 0) {
			t.Fatalf("a job that was %s became %+v", j.Status, s)
		}
		for i := range s.Start {
			task := s.Start[i]
			task.State = berth.TaskWaiting
			tasks = append(tasks, &task)
		}
		for _, id := range s.Stop {
			for _, task := range tasks {
				if task.ID == id {
					task.Stop = true
				}
			}
		}
		again := k.Step(kind.Job{Name: "j", Key: "j", Status: s.Status, State: s.State}, tasks)
		if len(again.Start)+len(again.Stop) > 0 {
			t.Fatalf("the step was taken twice: %+v then %+v", s, again)
		}
		if s.Status.Terminal() && s.State.Reason == "" && !j.Status.Terminal() {
			t.Fatalf("ended without a reason: %+v", s)
		}
	})
}

func FuzzValidate(f *testing.F) {
	f.Add(`{"jobType":"Command","command":"x ${{inputs.a}}","inputs":{"a":{"jobInputType":"literal","value":"1"}}}`)
	f.Add(`{"command":"${{ outputs.o }} ${{","environmentVariables":{"a":1,"b":null}}`)
	f.Add(`{"command":7,"limits":{"timeout":"P"}}`)
	f.Fuzz(func(t *testing.T, doc string) {
		if !json.Valid([]byte(doc)) {
			return
		}
		if err := command(t).Validate(json.RawMessage(doc)); err != nil && berth.CodeOf(err) == berth.Internal {
			t.Errorf("an error without a code: %v", err)
		}
	})
}

func TestWholeDocumentOfAnotherType(t *testing.T) {
	if _, err := kind.ReadComponent("c", []byte(`[]`)); err == nil || !strings.Contains(err.Error(), "the document must be an object, not a list") {
		t.Errorf("a list gives %v", err)
	}
}
