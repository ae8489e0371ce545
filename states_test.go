package berth_test

import (
	"os"
	"strings"
	"testing"

	"github.com/berthml/berth"
)

// TestTaskStates: ARCHITECTURE.md draws the states of a task in the order in which TaskState.Before
// has them, one after the other.
func TestTaskStates(t *testing.T) {
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "title: states of a task\n")
	text, _, _ := strings.Cut(rest, "```")
	last, n := "[*]", 0
	for line := range strings.Lines(text) {
		from, to, ok := strings.Cut(strings.TrimSpace(line), " --> ")
		if !ok {
			continue
		}
		if from != last {
			t.Errorf("%s follows %s", from, last)
		}
		if from != "[*]" && to != "[*]" && !berth.TaskState(from).Before(berth.TaskState(to)) {
			t.Errorf("%s is not before %s", from, to)
		}
		last = to
		n++
	}
	states := []berth.TaskState{berth.TaskWaiting, berth.TaskPlaced, berth.TaskStarting, berth.TaskRunning, berth.TaskEnding, berth.TaskDone}
	if n != len(states)+1 {
		t.Errorf("%d changes are drawn of %d states", n, len(states))
	}
	for _, s := range states {
		if !strings.Contains(text, string(s)+" --> ") {
			t.Errorf("%s is not drawn", s)
		}
	}
}
